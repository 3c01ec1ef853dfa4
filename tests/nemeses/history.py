"""A history of one session, recorded by its clients at any of several processes, and a checker of it.

Each writer changes a tool of its own, one update after the other, and writes the number of the update into the tool. So
a read shows for each writer which of its updates it has, beside the revision that the process answered with.

Linearizable means here: there is one order of all updates and reads, which is the order of their revisions, and it
agrees with the order in which those that did not overlap happened. The revisions are in the answers, so that no order
has to be searched: the check takes `n log n`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

Numbers = Mapping[str, int]
"""Writer → the number of its newest update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """`revision` is None for one that was not acknowledged: it may be applied or not, but not if it was `refused`."""

    writer: str
    number: int
    began: float
    ended: float = inf
    revision: int | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What one process has answered."""

    process: str
    began: float
    ended: float
    revision: int
    numbers: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An update as the log tells it. `after` is the revision that its reader had; None if the reader had lost it."""

    reader: str
    position: int
    after: int | None
    revision: int
    change: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class History:
    """What the clients of one session have recorded."""

    updates: list[Update] = field(default_factory=list[Update])
    reads: list[Read] = field(default_factory=list[Read])
    entries: list[Entry] = field(default_factory=list[Entry])

    def violations(self) -> list[str]:
        """Return what cannot have happened in a session that is linearizable, and has a log that is exact."""
        return [*self._order(), *self._contents(), *self._log()]

    def _order(self) -> Iterator[str]:
        """The order by revision respects real time; no revision is given twice."""
        given: dict[int, Update] = {}
        for update in self.updates:
            if update.revision is not None and (first := given.setdefault(update.revision, update)) is not update:
                yield f"revision {update.revision} was given twice: {first}, {update}"
        acknowledged = [update for update in self.updates if update.revision is not None]
        newest, behind = -1, list[tuple[float, int]]()
        for operation in sorted([*acknowledged, *self.reads], key=lambda one: one.began):
            while behind and behind[0][0] < operation.began:
                newest = max(newest, heapq.heappop(behind)[1])
            revision = operation.revision or 0
            if revision < newest or (revision == newest and isinstance(operation, Update)):
                yield f"{operation} began after revision {newest} had been answered"
            heapq.heappush(behind, (operation.ended, revision))

    def _contents(self) -> Iterator[str]:
        """A read has exactly the updates up to its revision, and nothing that was refused or not yet asked for."""
        acknowledged: defaultdict[str, list[Update]] = defaultdict(list)
        for update in sorted(self.updates, key=lambda one: one.revision or 0):
            if update.revision is not None:
                acknowledged[update.writer].append(update)
        asked = {(update.writer, update.number): update for update in self.updates}
        at: dict[int, Numbers] = {}
        for read in self.reads:
            if at.setdefault(read.revision, read.numbers) != read.numbers:
                yield f"{read} differs from what another process has answered: {at[read.revision]}"
            for writer, number in read.numbers.items():
                own = acknowledged[writer]
                here = bisect_right(own, read.revision, key=lambda one: one.revision or 0)
                if here and number < own[here - 1].number:
                    yield f"{read} misses {own[here - 1]}"
                if here < len(own) and number >= own[here].number:
                    yield f"{read} is ahead of {own[here]}"
                update = asked.get((writer, number))
                if number and (update is None or update.refused or update.began > read.ended):
                    yield f"{read} shows update {number} of {writer}, which was refused or not asked for"

    def _log(self) -> Iterator[str]:
        """Each change is in the log once, at its own position, and each reader gets all of them, once, in order."""
        entries: dict[int, Entry] = {}
        positions: dict[int, Entry] = {}
        last: dict[str, int] = {}
        updates = {update.revision: update for update in self.updates if update.revision is not None}
        for entry in self.entries:
            same = (entry.revision, entry.change)
            other = positions.setdefault(entry.position, entry)
            if (other.revision, other.change) != same:
                yield f"position {entry.position} was used twice: {other}, {entry}"
            other = entries.setdefault(entry.revision, entry)
            if other.position != entry.position or other.change != entry.change:
                yield f"revision {entry.revision} is in the log twice: {other}, {entry}"
            if entry.position <= last.get(entry.reader, -1):
                yield f"{entry} was sent again to its reader"
            if entry.after is not None and entry.revision != entry.after + 1:
                yield f"{entry} follows revision {entry.after}"
            last[entry.reader] = entry.position
            update = updates.get(entry.revision)
            if update is not None and entry.change != ((update.writer, update.number),):
                yield f"{entry} is not {update}"
        yield from _misplaced(sorted(entries.values(), key=lambda one: one.revision))


def _misplaced(entries: Sequence[Entry]) -> Iterator[str]:
    for entry, following in pairwise(entries):
        if entry.position >= following.position:
            yield f"the log has {following} before {entry}"
