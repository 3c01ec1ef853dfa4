"""Characters that a person cannot see but a model reads: they have no place in a description."""

from __future__ import annotations

import re

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
