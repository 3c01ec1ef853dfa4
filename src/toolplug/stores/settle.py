"""What a batch of commits does to the records that it names: the one place where revisions and positions are given.

Pure, so that every store decides alike: a store reads the heads, settles, and writes the settlement in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from toolplug.errors import StoreConflict
from toolplug.stores.change import Change
from toolplug.stores.store import Event


class Counters(NamedTuple):
    """What a store remembers beside its records.

    `removed`: the highest revision that any removed record had; a new record begins above it.
    `position`: the last position given out, to an event or to the beginning of a log.
    """

    removed: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A stored record without its value.

    `origin`: the position of its log before the first event. `position`: of the last event. `appended`: how many
    events the log ever took, the dropped ones too.
    """

    revision: int
    expires_at: float | None
    origin: int
    position: int
    appended: int

    def alive(self, now: float) -> bool:
        """Whether the record has not expired."""
        return self.expires_at is None or self.expires_at > now


@dataclass(slots=True, kw_only=True)
class Settlement:
    """What must be written, in this order: `removed` (with their logs), then `written`, `appended`, `counters`.

    `answers` stand in the order of the changes: a revision, or the conflict of that change, which touches no other.
    """

    counters: Counters
    answers: list[int | StoreConflict] = field(default_factory=list[int | StoreConflict])
    removed: set[str] = field(default_factory=set[str])
    written: dict[str, tuple[Head, bytes]] = field(default_factory=dict[str, tuple[Head, bytes]])
    appended: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])

    @property
    def idle(self) -> bool:
        """Whether nothing has to be written."""
        return not (self.removed or self.written)

    @property
    def touched(self) -> Iterable[str]:
        """The keys whose logs changed or went."""
        return self.removed | self.appended.keys()


def settle(changes: Sequence[Change], stored: Mapping[str, Head], counters: Counters, *, now: float) -> Settlement:
    """Decide each change in turn, each seeing those before it.

    `stored`: the heads of all records that the changes name, as far as there are any, and of any others that may have
    expired: an expired record is removed first, whether or not a change names it.
    """
    settlement = Settlement(counters=counters)
    for key, head in stored.items():
        if not head.alive(now):
            _remove(settlement, key, head.revision)
    for change in changes:
        head = _current(settlement, stored, change.key)
        actual = head.revision if head else 0
        if change.expected is not None and change.expected != actual:
            settlement.answers.append(StoreConflict(change.key, expected=change.expected, actual=actual))
        elif change.value is not None:
            settlement.answers.append(_write(settlement, change, change.value, head, now))
        elif head is not None:
            _remove(settlement, change.key, head.revision + 1)
            settlement.answers.append(head.revision + 1)
        else:
            settlement.answers.append(0)
    return settlement


def _current(settlement: Settlement, stored: Mapping[str, Head], key: str) -> Head | None:
    if key in settlement.written:
        return settlement.written[key][0]
    return None if key in settlement.removed else stored.get(key)


def _remove(settlement: Settlement, key: str, revision: int) -> None:
    settlement.removed.add(key)
    settlement.written.pop(key, None)
    settlement.appended.pop(key, None)
    settlement.counters = settlement.counters._replace(removed=max(settlement.counters.removed, revision))


def _write(settlement: Settlement, change: Change, value: bytes, head: Head | None, now: float) -> int:
    removed, position = settlement.counters
    if head is None:
        position += 1
        head = Head(revision=removed, expires_at=None, origin=position, position=position, appended=0)
    if change.events:
        entries = [Event(at, data) for at, data in enumerate(change.events, position + 1)]
        settlement.appended.setdefault(change.key, []).extend(entries)
        position = entries[-1].id
        head = replace(head, position=position, appended=head.appended + len(entries))
    settlement.counters = Counters(removed, position)
    head = replace(head, revision=head.revision + 1, expires_at=None if change.ttl_s is None else now + change.ttl_s)
    settlement.written[change.key] = (head, value)
    return head.revision
