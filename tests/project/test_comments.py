"""The reason of a surprising line is a comment at that line, not only in a test or a commit."""

from __future__ import annotations

from tests.project.sources import sources

LEAST = 0.014
"""Comment lines among all lines; only what a reader stumbles over has one, so that the share is low.

The aim is 1.5 %; the rest is room for new code that says itself what it does."""


def test_the_product_says_why_where_a_reader_stumbles() -> None:
    lines = [line.strip() for source in sources("src/toolplug/**/*.py") for line in source.text.splitlines()]
    comments = [line for line in lines if line.startswith("#")]
    assert len(comments) >= LEAST * len(lines)
