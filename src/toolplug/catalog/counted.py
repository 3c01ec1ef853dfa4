"""A number of things, in words for people."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
