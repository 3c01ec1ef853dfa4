"""Cleaning text that a model reads (invisible characters, the heading reserved for notes), and counts in words."""

from __future__ import annotations

import re


def counted(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


NOTES_HEADING = "### Additional Tool Notes"
"""Stands before the notes that a user attached; nothing below it is the author's."""

_FORGED = re.compile(r"\s*#{1,6}\s*Additional\s+Tool\s+Notes[\s#:]*", re.IGNORECASE)
_BREAKS = re.compile("[\r\n\v\f\u0085\u2028\u2029]+")
_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and line feed
    "\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # zero width and direction
    "\U000e0000-\U000e007f"  # tags
    "]"
)


def cleaned(text: str) -> str:
    """The text without control, bidirectional and zero-width characters; a lone carriage return goes as well."""
    return _UNSEEN.sub("", text)


def cleaned_description(text: str) -> str:
    """The same of a tool's description, without lines that could be taken for the heading of the user's notes."""
    seen = cleaned(text)
    if "#" not in seen:
        return seen
    return "".join(line for line in seen.splitlines(keepends=True) if not _FORGED.fullmatch(line))


def in_one_line(text: str) -> str:
    """The text with every run of line breaks as one space, without space around it."""
    return _BREAKS.sub(" ", text).strip()
