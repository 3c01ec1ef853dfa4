"""What can be sent as a header."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e]{0,8192}")


def is_header(name: str, value: str) -> bool:
    """Can this be sent: a token, and printable ASCII of one line."""
    return bool(_NAME.fullmatch(name) and _VALUE.fullmatch(value))
