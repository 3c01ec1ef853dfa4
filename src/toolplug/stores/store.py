"""Records and their events as bytes, behind one small protocol.

A record is a value under a key. Each record has one log, a bounded list of events: they are appended by themselves, or
in the same transaction as the record's change, so that a crash leaves both or neither. The log lives and dies with its
record.

`toolplug.testing.store_laws` is the suite that every store passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

KEPT_EVENTS = 256
"""How many events a log keeps where nobody says otherwise; older ones are dropped as new ones come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as one moment saw it.

    `revision`: rises by one with every commit of this record. A key whose record was deleted or has expired begins
    again above every revision that it ever had, so that a remembered revision never matches a later record.
    `expires_at`: seconds on the store's clock, `None` for never; an expired record is as good as deleted.
    `position`: the end of the record's log at that moment; `Store.events` from here on misses nothing that this value
    does not hold already.
    """

    value: bytes
    revision: int
    expires_at: float | None
    position: int


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a log. `id` rises within a log, may leave gaps, and is never used twice in one store."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """A look into a log from some position on.

    `known` is false where the position is not one of this log: it is older than what is kept, lies in the future,
    belongs to another log or to an earlier record of the same key, or there is no record. `entries` is then empty and
    the reader begins again from `Store.read`. With `known`, no entries means that nothing happened since.
    """

    known: bool
    entries: tuple[Event, ...] = ()


class Store(Protocol):
    """Where everything is kept that must outlive a call.

    Used inside `async with`, by the tasks of one event loop. Every method may raise `StoreUnavailable` (busy for two
    seconds, full, read-only, not open), `StoreRefused` (the file is corrupt) and `StoreMisused` (an argument outside
    the limits). Keys are text of 1 to 512 bytes of UTF-8 without U+0000 and U+10FFFF; `change.py` has the other limits.
    Times to live follow the clock that the store was made with, not the loop's.
    """

    async def read(self, key: str) -> Record | None:
        """Return the live record, or `None`. Every change that was acknowledged before is seen."""
        ...

    async def commit(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int | None = None,
        ttl_s: float | None = None,
        events: Sequence[bytes] = (),
    ) -> int:
        """Write the record and append the events, both or neither, and return the record's new revision.

        `value`: `None` deletes the record together with its log, and takes no events; deleting what is not there is
        no change and returns 0. `expected`: the revision that the record must have, 0 for "there is none", `None` for
        whatever it is; otherwise `StoreConflict`. `ttl_s`: from now; every commit sets it anew, `None` is for ever.

        When it returns, the commit survives the death of the process. A cancelled commit is done whole or not at all.
        """
        ...

    async def extend(self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None) -> bool:
        """Append the events to a live record's log and renew its time to live, both or neither.

        Value and revision stay, so that it disturbs nobody who expects a revision; the position rises with the events.
        `ttl_s`: from now, be it later or earlier than before; `None` leaves the expiry as it is. Returns False, and
        nothing is written, where there is no live record. Extending by nothing only tells whether there is one.

        Durable and cancelled as a commit is.
        """
        ...

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the keys of live records that begin with `prefix` and come after `after`, in code-point order."""
        ...

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        """Return the events of a log after a position, oldest first, at most `limit`.

        `after`: a record's `position` or an event's `id`; `None` is before the oldest event that is kept. Where nothing
        follows it yet, waits up to `wait_s` seconds: a change by this process ends the wait at once, one of another
        process within 250 ms, and the record's expiry at the latest when the wait is over.
        """
        ...

    def now(self) -> float:
        """Return the time, in seconds since the epoch, on the clock that times to live follow."""
        ...

    async def aclose(self) -> None:
        """Finish the changes that were begun, end the waits and release everything; a second time does nothing."""
        ...

    async def __aenter__(self) -> Self:
        """Open the store, in at most two seconds."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
