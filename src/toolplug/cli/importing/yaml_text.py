"""Plain values as the YAML that a person would write; every reader of YAML sees the same in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from toolplug.config.node import ScalarValue, Value
from toolplug.config.scalar import resolve_scalar

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./+-]*")
_FORMER_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
"""Truth values of YAML 1.1."""
_UNPRINTABLE = re.compile(r"[\x7f-\x84\x86-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def block_text(entries: Mapping[str, Mapping[str, Value]], indent: int) -> Iterator[str]:
    """The lines of these entries, without line ends: a key a line, lists in one line."""
    outer, middle, inner = (" " * (indent + 2 * level) for level in range(3))
    for name, entry in entries.items():
        yield f"{outer}{scalar_text(name)}:"
        for key, value in entry.items():
            if isinstance(value, dict):
                yield f"{middle}{scalar_text(key)}:"
                yield from (f"{inner}{scalar_text(part)}: {flow_text(item)}" for part, item in value.items())
            else:
                yield f"{middle}{scalar_text(key)}: {flow_text(value)}"


def flow_text(value: Value | Mapping[str, Value]) -> str:
    """The value in one line."""
    if isinstance(value, list):
        return f"[{', '.join(flow_text(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{scalar_text(key)}: {flow_text(item)}' for key, item in value.items())}}}"
    return scalar_text(value)


def scalar_text(value: ScalarValue) -> str:
    """The scalar: text without quotes only where nobody takes it for anything else."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and resolve_scalar(value) == value and value.lower() not in _FORMER_WORDS:
        return value
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
