"""The permits of one limit that processes have borrowed, in one volatile record of their store.

Each process has an entry in the record, its loans, which only it changes, by compare-and-swap. What it has in memory is
right: an entry that differs is written again.

A volatile record may be lost with the store's server. Every process knows the id of the record that it has seen, so
that it notices another one, or none. Then nobody borrows until every running process has had the time to write its
entry again, which each does at its next look.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from secrets import token_hex
from typing import NamedTuple, TypedDict, cast

import orjson

from toolplug.catalog.plan import Refusal
from toolplug.cluster.processes import LEASE_S
from toolplug.errors import StoreConflict, StoreError
from toolplug.stores.store import Store

KEPT_S = 7200.0
"""Seconds for which the record is kept after its last look; twice the longest window."""

RETRY_S = 1.0
"""How long a failure of the store counts: it takes up to two seconds to fail, for which not every call should wait."""

_LOG = logging.getLogger("toolplug.execution")


class Loan(NamedTuple):
    """So many permits, borrowed at `at` on the store's clock."""

    at: float
    permits: int


Loans = tuple[Loan, ...]


class Lent(NamedTuple):
    """What the other processes have borrowed, when this one changes its own loans.

    `pause_s`: seconds for which nobody may borrow more, since the record was lost; 0 if it was not.
    """

    others: Mapping[str, Loans]
    pause_s: float = 0.0

    @property
    def permits(self) -> int:
        """The number of permits that others have borrowed."""
        return sum(loan.permits for loans in self.others.values() for loan in loans)


class _Content(NamedTuple):
    id: str
    open_at: float
    loans: Mapping[str, Loans]


class _StoredLoans(TypedDict):
    id: str
    open_at: float
    loans: dict[str, list[tuple[float, int]]]


class LoanRecord:
    """The record of one limit, as one process sees it.

    `counted`: returns those loans of others that count, and may change their times; may ask the store. A process that
    has lost what others have borrowed waits `recovery_s` seconds.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        counted: Callable[[Mapping[str, Loans]], Awaitable[dict[str, Loans]]],
        *,
        recovery_s: float = LEASE_S,
    ) -> None:
        self.recovery_s: float = recovery_s
        self.lent: Lent = Lent({})
        self.position: int | None = None
        self._store = store
        self._key = key
        self._counted = counted
        self._known: _Content | None = None

    async def write(self, name: str, own: Callable[[Lent], Loans], *, tell: bool = False) -> None:
        """Make what `own` returns the loans of this process, under this name; `own` may be asked several times.

        With `tell`, those that wait in `changed` go on. Raises `StoreError`.
        """
        while True:
            record = await self._store.read(self._key)
            before = None if record is None else _content(record.value)
            now = self._store.now()
            content = self._recover(before, now)
            counted = await self._counted({key: loans for key, loans in content.loans.items() if key != name})
            self.lent = Lent(counted, max(content.open_at - now, 0.0))
            mine = own(self.lent)
            after = content._replace(loans={**counted, name: mine} if mine else counted)
            # An unchanged record is written for its time alone, and only when half of that is over.
            fresh = record is not None and (record.expires_at or 0.0) - now > KEPT_S / 2
            if after == before and fresh:
                self._known, self.position = after, None if record is None else record.position
                return
            try:
                await self._store.commit(
                    self._key,
                    _bytes(after),
                    expected=0 if record is None else record.revision,
                    ttl_s=KEPT_S,
                    events=[b""] if tell else (),
                    # The own id wakes nobody: only returned permits concern those that wait.
                    to=None if tell else self._store.id,
                )
            except StoreConflict:
                continue
            self._known = after
            return

    async def wait_for_return(self, wait_s: float) -> None:
        """Wait until some process has returned permits, since the last `write` that found nothing to change."""
        await self._store.events(self._key, self.position, wait_s=wait_s)

    def _recover(self, stored: _Content | None, now: float) -> _Content:
        """Return the content of the record; with all that this process knows if it was lost."""
        known = self._known
        if stored is not None and (known is None or known.id == stored.id):
            return stored._replace(open_at=min(stored.open_at, now + self.recovery_s))
        if known is None:
            return _Content(token_hex(4), 0.0, {})
        found = _Content(token_hex(4), 0.0, {}) if stored is None else stored
        return found._replace(open_at=now + self.recovery_s, loans={**known.loans, **found.loans})


class StoreFailures:
    """Whether the store has failed for one limit a moment ago."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        self._what = what
        self._clock = clock
        self._until: float | None = None

    @property
    def recent(self) -> bool:
        """True for `RETRY_S` seconds after a failure."""
        return self._until is not None and self._clock() < self._until

    def note(self, error: StoreError) -> None:
        """Note a failure; the first one is logged."""
        if self._until is None:
            _LOG.warning("the limit of %s over all processes cannot be counted: %s", self._what, error)
        self._until = self._clock() + RETRY_S

    def over(self) -> None:
        self._until = None


UNAVAILABLE = Refusal("the store is unavailable", RETRY_S)
"""Why a call is refused whose limit cannot be counted."""


def record_lost(what: str, pause_s: float) -> Refusal:
    """Return why a call is refused after the store has lost the record."""
    return Refusal(f"the store has lost how many calls of {what} were counted", pause_s)


def _content(value: bytes) -> _Content:
    stored = cast("_StoredLoans", orjson.loads(value))
    loans = {name: tuple(Loan(*loan) for loan in loans) for name, loans in stored["loans"].items()}
    return _Content(stored["id"], stored["open_at"], loans)


def _bytes(content: _Content) -> bytes:
    loans = {name: [(loan.at, loan.permits) for loan in loans] for name, loans in content.loans.items()}
    return orjson.dumps(_StoredLoans(id=content.id, open_at=content.open_at, loans=loans))
