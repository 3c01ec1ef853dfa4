"""Stores and processes with one mistake each, which the checker of histories must find."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tests.nemeses.replicas import SharedMemory, Way
from tests.nemeses.session_world import Parts

from toolplug.cluster.processes import Processes
from toolplug.errors import StoreUnavailable
from toolplug.stores.store import Record


class _WritesBlindly(Way):
    """No compare-and-swap: a commit replaces whatever there is."""

    async def commit(self, key: str, value: bytes | None, *, expected: int | None = None, **more: Any) -> int:
        return await super().commit(key, value, **more)


class _ReadsFromItsCache(Way):
    """A record that was read is not read again."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._known: dict[str, int] = {}

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        if not self._known.keys() >= {*keys}:
            self._known |= await super().revisions(keys)
        return {key: self._known[key] for key in keys}


class _LogsTwice(Way):
    """A commit that is repeated appends its events twice."""

    async def commit(self, key: str, value: bytes | None, *, events: Sequence[bytes] = (), **more: Any) -> int:
        return await super().commit(key, value, events=[*events, *events], **more)


class _CountsAgain(SharedMemory):
    """The counter of positions falls back, as one that is not in the same transaction does after a crash."""

    async def commit(self, key: str, value: bytes | None, **more: Any) -> int:
        revision = await super().commit(key, value, **more)
        if revision % 8 == 0 and "events" in more:
            self._counters = self._counters._replace(position=self._counters.position - 3)
        return revision


class _KnowsEnough(Way):
    """A process that is cut off answers from what it knew."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._revisions: dict[str, int] = {}
        self._records: dict[str, Record | None] = {}

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        try:
            self._revisions |= await super().revisions(keys)
        except StoreUnavailable:
            if not self._revisions.keys() >= {*keys}:
                raise
        return {key: self._revisions[key] for key in keys}

    async def read(self, key: str) -> Record | None:
        try:
            self._records[key] = await super().read(key)
        except StoreUnavailable:
            if key not in self._records:
                raise
        return self._records[key]


class _NeverLapses(Processes):
    """A process whose lease has lapsed goes on."""

    def check(self) -> None:
        """Raise nothing."""


SEEDED = {
    "no compare-and-swap": (Parts(way=_WritesBlindly), "was given twice"),
    "a cached read": (Parts(way=_ReadsFromItsCache), "had been answered"),
    "an entry twice in the log": (Parts(way=_LogsTwice), "in the log twice"),
    "a position that is used again": (Parts(memory=_CountsAgain), "was used twice"),
    "a zombie that serves after its lease has lapsed": (
        Parts(way=_KnowsEnough, processes=_NeverLapses),
        "had been answered",
    ),
}
"""What is wrong → the world in which it is, and what the checker says of it."""
