"""Wire names: what a model API gets for a canonical name (docs/reference/names.md).

A function of the canonical name alone, so that adding or removing a tool never renames another.
"""

from __future__ import annotations

import base64
import hashlib
import re

MAX_WIRE_NAME = 64

_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_HASHED = re.compile(r".*_-[a-z2-7]{8}", re.DOTALL)
_HEAD = 54


def wire_name(name: str) -> str:
    """The name of `[A-Za-z0-9_-]{1,64}` that stands for a canonical name; always the same one."""
    if not _HASHED.fullmatch(name):
        if _LEGAL.fullmatch(name) and "__" not in name:
            return name
        prefix, dot, tool = name.partition(".")
        joined = f"{prefix}__{tool}"
        if dot and _joins(prefix, tool) and len(joined) <= MAX_WIRE_NAME and not _HASHED.fullmatch(joined):
            return joined
    digest = base64.b32encode(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()).decode("ascii").lower()
    return f"{_ILLEGAL_CHARACTER.sub('_', name)[:_HEAD]}_-{digest[:8]}"


def _joins(prefix: str, tool: str) -> bool:
    """Do both parts keep the double underscore between them the only one."""
    return (
        bool(_LEGAL.fullmatch(prefix) and _LEGAL.fullmatch(tool))
        and "__" not in prefix
        and "__" not in tool
        and not prefix.endswith("_")
        and not tool.startswith("_")
    )
