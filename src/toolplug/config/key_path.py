"""The path from the root of a document to one of its values, and how it is written for people."""

from __future__ import annotations

import json
import re
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

_BARE = re.compile(r"[\w/@+-]+")


def shown_path(path: KeyPath) -> str:
    """Write a path as `auth.api_keys[0].key`; a key that is not a plain word is quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if _BARE.fullmatch(part) else json.dumps(part)
            text += f".{word}" if text else word
    return text
