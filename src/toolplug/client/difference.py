"""What changes from one set of tools to another, as one update of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from toolplug.client.tool import Definition

Definitions = Mapping[str, Definition]
"""Definitions by name, in their order."""


class Difference(NamedTuple):
    """False where nothing changes."""

    added: tuple[Definition, ...]
    removed: tuple[str, ...]
    modified: tuple[Definition, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.modified)

    def wire(self) -> dict[str, object]:
        """As it stands in an update: what is empty is left out."""
        return {key: list(part) for key, part in self._asdict().items() if part}


def difference(old: Definitions, new: Definitions) -> Difference:
    """Compares whole definitions; the order of keys and of tools is no difference."""
    return Difference(
        added=tuple(definition for name, definition in new.items() if name not in old),
        removed=tuple(name for name in old if name not in new),
        modified=tuple(
            definition for name, definition in new.items() if name in old and _text(old[name]) != _text(definition)
        ),
    )


def _text(definition: Definition) -> bytes:
    return orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)
