"""A rate that holds for all processes of a store together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from toolplug.catalog.plan import Refusal
from toolplug.catalog.text import pluralize
from toolplug.cluster.loans import (
    UNAVAILABLE,
    Lent,
    Loan,
    LoanRecord,
    Loans,
    StoreFailures,
    record_lost,
)
from toolplug.cluster.processes import LEASE_S, Processes, since_boot
from toolplug.errors import StoreError
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import Store

USABLE = 1 / 60
"""The part of the window for which a loan may be used; it counts for the window and this part.

Any window then contains only calls of loans that are at most so much longer apart, and all of these count.
"""

_AFTER_S = 0.001
"""A loan is returned so long after its end, since a timer of the loop may fire a moment early."""


@dataclass(slots=True)
class _Own:
    """A loan of this process: borrowed at `at` on the store's clock, and at `since` on that of this process."""

    at: float
    since: float
    count: int
    used: int = 0


class ClusterRate:
    """At most `count` calls may begin in any `per_s` seconds, in all processes together.

    A process borrows permits and admits calls by them without asking the store again. It returns what it has not used.
    The windows follow the store's clock. Without the store, and with `share`, each process admits its part.
    """

    setting = "rate"

    def __init__(
        self,
        store: Store,
        processes: Processes,
        key: str,
        what: str,
        *,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        self.count: int = 0
        self.per_s: float = 0.0
        self.share: bool = False
        self.what: str = what
        self._store = store
        self._processes = processes
        self._record = LoanRecord(store, key, self._count_loans)
        self._clock = clock
        self._loans: deque[_Own] = deque()
        self._waiting = 0
        # Calls that come while one asks the store wait for its answer, which as a rule brings permits for them too.
        self._writing = asyncio.Lock()
        self._failures = StoreFailures(what, clock)
        self._tasks = BackgroundTasks()

    def resize(self, count: int, per_s: float, *, share: bool) -> None:
        """Change the numbers; calls that were counted stay counted."""
        self.count, self.per_s, self.share = count, per_s, share
        # After that time no older loan counts any more, whoever had it.
        self._record.recovery_s = min(LEASE_S, self._counts_s)

    @property
    def usage(self) -> str:
        self._forget()
        here = sum(loan.used for loan in self._loans)
        all_of_them = self._record.lent.permits + sum(loan.count for loan in self._loans)
        return (
            f"{here} of {self.count} calls of {self.what} began here in the last {self.per_s:g} s, "
            f"all processes have borrowed {all_of_them}"
        )

    def refusal(self) -> Refusal | None:
        """Return the refusal by what this process knows, without asking the store."""
        if self._usable() is not None or self._free(self._record.lent) > 0:
            return None
        return self._full()

    async def admit(self, deadline: float) -> Refusal | None:
        loan = self._usable()
        if loan is None:
            return await self._borrow_share(deadline)
        loan.used += 1
        return None

    def on_answer(self, status: str) -> None:
        """Ignore the status that the caller got."""

    def on_end(self) -> None:
        """Ignore the end of the tool itself."""

    async def look(self) -> None:
        """Note which record there is, and write the loans again if they were lost. Raises `StoreError`."""
        async with self._writing:
            await self._record.write(self._store.id, lambda _: self._read_own())

    async def aclose(self) -> None:
        """Return what was not used; without the store it counts as if it was."""
        await self._tasks.cancel()
        if self._loans:
            self._loans[-1].count = self._loans[-1].used
            await self._return()

    @property
    def _counts_s(self) -> float:
        return (1 + USABLE) * self.per_s

    def _usable(self) -> _Own | None:
        """Return the loan that has permits left."""
        loan = self._loans[-1] if self._loans else None
        return loan if loan is not None and loan.used < loan.count and not self._over(loan) else None

    def _over(self, loan: _Own) -> bool:
        return self._clock() >= loan.since + USABLE * self.per_s

    def _forget(self) -> None:
        while self._loans and self._clock() >= self._loans[0].since + self._counts_s:
            self._loans.popleft()

    def _read_own(self) -> Loans:
        """Return the own loans as they count: one that is over counts for what was used of it.

        The clock of this process tells how old they are; if the store's clock was set, they get new times.
        """
        self._forget()
        now, present = self._store.now(), self._clock()
        for loan in self._loans:
            at = now - (present - loan.since)
            if abs(at - loan.at) > USABLE * self.per_s:
                loan.at = at
        mine = [(loan, loan.used if self._over(loan) else loan.count) for loan in self._loans]
        return tuple(Loan(loan.at, count) for loan, count in mine if count)

    def _free(self, lent: Lent) -> int:
        return self.count - lent.permits - sum(loan.permits for loan in self._read_own())

    async def _count_loans(self, others: Mapping[str, Loans]) -> dict[str, Loans]:
        """Return the loans of others that count; one of the future, after a clock was set back, is one of now."""
        now = self._store.now()
        latest = now + USABLE * self.per_s
        counting = {
            name: tuple(
                loan if loan.at <= latest else Loan(now, loan.permits)
                for loan in loans
                if loan.at > now - self._counts_s
            )
            for name, loans in others.items()
        }
        return {name: loans for name, loans in counting.items() if loans}

    async def _borrow_share(self, deadline: float) -> Refusal | None:
        self._waiting += 1
        try:
            # The timeout is outside, as waiting for the lock counts too.
            async with asyncio.timeout_at(deadline), self._writing:
                # Asked again under the lock: the call before may have borrowed for this one.
                loan = self._usable()
                if loan is None and not self._failures.recent:
                    try:
                        await self._borrow()
                    except StoreError as error:
                        self._failures.note(error)
                    else:
                        self._failures.over()
                    loan = self._usable()
        finally:
            self._waiting -= 1
        if loan is None and self._failures.recent:
            loan = self._own_part()
        if loan is not None:
            loan.used += 1
            return None
        return UNAVAILABLE if self._failures.recent else self._full()

    async def _borrow(self) -> None:
        """Borrow permits for the calls that wait, and some for the next. Raises `StoreError`."""
        granted, since, at = 0, 0.0, 0.0

        def own(lent: Lent) -> Loans:
            nonlocal granted, since, at
            since = self._clock()  # before the store's clock is read, so that the loan ends here first
            at = self._store.now()
            # A quarter of the rate, divided among the processes: large enough that the store is asked seldom, small
            # enough that one busy process does not hold what the others need.
            wanted = max(self.count // 4 // (len(self._processes.others) + 1), self._waiting, 1)
            granted = 0 if lent.pause_s else max(min(self._free(lent), wanted), 0)
            mine = self._read_own()
            return (*mine, Loan(at, granted)) if granted else mine

        await self._record.write(self._store.id, own)
        # Appended only when the write has succeeded: the record of the store is what the others see.
        if granted:
            self._loans.append(_Own(at, since, granted))
            self._tasks.start(self._return_later(self._loans[-1]), "toolplug-cluster-rate")

    def _own_part(self) -> _Own | None:
        """Return a loan of what this process may admit without the store; None if that is nothing."""
        if not self.share:
            return None
        self._forget()
        part = self.count // (len(self._processes.others) + 1)
        left = part - sum(loan.used for loan in self._loans)
        # What was borrowed before the store failed counts for the part too.
        if left <= 0:
            return None
        self._loans.append(_Own(self._store.now(), self._clock(), left))
        return self._loans[-1]

    async def _return_later(self, loan: _Own) -> None:
        """Return the permits of the loan that are not used in time."""
        await asyncio.sleep(loan.since + USABLE * self.per_s - self._clock() + _AFTER_S)
        if loan.used < loan.count:
            await self._return()

    async def _return(self) -> None:
        with suppress(StoreError):  # the next change of the loans returns them as well
            await self.look()

    def _full(self) -> Refusal:
        lent, now = self._record.lent, self._store.now()
        if lent.pause_s:
            return record_lost(self.what, lent.pause_s)
        loans = [*(loan for loans in lent.others.values() for loan in loans), *self._read_own()]
        first = min((loan.at for loan in loans), default=now)
        taken = f"{self.what} takes {pluralize(self.count, 'call')} in {self.per_s:g} s in all processes"
        return Refusal(taken, max(first + self._counts_s - now, 0.001))
