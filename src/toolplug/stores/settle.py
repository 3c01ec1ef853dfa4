"""What a batch of changes does to the records that it names: the one place where revisions and positions are given.

Pure, so that every store decides alike: a store reads the heads, settles, and writes the settlement in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from toolplug.errors import StoreConflict
from toolplug.stores.change import Change, Commit, Extension
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
    """What must be written, in this order: `removed` (with their logs), then `heads`, `values`, `appended`, `counters`.

    `heads` are those of all records that changed, `values` those that did. `answers` stand in the order of the changes:
    the record's revision then, 0 where there is none, or the conflict of that change, which touches no other.
    """

    counters: Counters
    answers: list[int | StoreConflict] = field(default_factory=list[int | StoreConflict])
    removed: set[str] = field(default_factory=set[str])
    heads: dict[str, Head] = field(default_factory=dict[str, Head])
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    appended: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])

    @property
    def idle(self) -> bool:
        """Whether nothing has to be written."""
        return not (self.removed or self.heads)

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
        if isinstance(change, Commit):
            settlement.answers.append(_commit(settlement, change, head, now))
        else:
            settlement.answers.append(_extend(settlement, change, head, now))
    return settlement


def _current(settlement: Settlement, stored: Mapping[str, Head], key: str) -> Head | None:
    if key in settlement.heads:
        return settlement.heads[key]
    return None if key in settlement.removed else stored.get(key)


def _remove(settlement: Settlement, key: str, revision: int) -> None:
    settlement.removed.add(key)
    settlement.heads.pop(key, None)
    settlement.values.pop(key, None)
    settlement.appended.pop(key, None)
    settlement.counters = settlement.counters._replace(removed=max(settlement.counters.removed, revision))


def _commit(settlement: Settlement, change: Commit, head: Head | None, now: float) -> int | StoreConflict:
    actual = head.revision if head else 0
    if change.expected is not None and change.expected != actual:
        return StoreConflict(change.key, expected=change.expected, actual=actual)
    if change.value is not None:
        return _write(settlement, change, change.value, head, now)
    if head is None:
        return 0
    _remove(settlement, change.key, head.revision + 1)
    return head.revision + 1


def _write(settlement: Settlement, change: Commit, value: bytes, head: Head | None, now: float) -> int:
    if head is None:
        removed, position = settlement.counters
        position += 1
        settlement.counters = Counters(removed, position)
        head = Head(revision=removed, expires_at=None, origin=position, position=position, appended=0)
    head = _append(settlement, change, head)
    head = replace(head, revision=head.revision + 1, expires_at=None if change.ttl_s is None else now + change.ttl_s)
    settlement.heads[change.key] = head
    settlement.values[change.key] = value
    return head.revision


def _extend(settlement: Settlement, change: Extension, head: Head | None, now: float) -> int:
    if head is None:
        return 0
    if change.ttl_s is not None:
        head = replace(head, expires_at=now + change.ttl_s)
    if change.events or change.ttl_s is not None:
        settlement.heads[change.key] = _append(settlement, change, head)
    return head.revision


def _append(settlement: Settlement, change: Change, head: Head) -> Head:
    if not change.events:
        return head
    removed, position = settlement.counters
    entries = [Event(at, data) for at, data in enumerate(change.events, position + 1)]
    settlement.appended.setdefault(change.key, []).extend(entries)
    position = entries[-1].id
    settlement.counters = Counters(removed, position)
    return replace(head, position=position, appended=head.appended + len(entries))
