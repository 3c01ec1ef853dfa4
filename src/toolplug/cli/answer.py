"""What a command answers, on stdout."""

from __future__ import annotations

import json

import typer


def print_json(value: object) -> None:
    """One JSON document, for programs and still readable."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def counted(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
