"""What is different between two listings of one server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from toolplug.discovery.record import FoundTool


class Changes(NamedTuple):
    """Names of tools, in the order of the listing that has them. A definition has changed when its digest has."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    modified: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{len(names)} {kind}" for kind, names in self._asdict().items() if names) or "no change"


NO_CHANGE = Changes((), (), ())


def changes(before: Iterable[FoundTool], after: Iterable[FoundTool]) -> Changes:
    """From one listing to the next."""
    before, after = tuple(before), tuple(after)
    if before == after:
        return NO_CHANGE
    old = {tool.name: tool.definition.ref.digest for tool in before}
    new = {tool.name: tool.definition.ref.digest for tool in after}
    return Changes(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        modified=tuple(name for name, digest in new.items() if old.get(name, digest) != digest),
    )
