"""The limits of one host that hold for all processes of its store together: calls at once, and calls in a window."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Self
from urllib.parse import quote

from toolplug.catalog.plan import Refusal
from toolplug.catalog.text import pluralize
from toolplug.cluster.loans import (
    RETRY_S,
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
from toolplug.execution.limiters import ConcurrencyLimit
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import VOLATILE, Store

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


LOOKS_AGAIN_S = 1.0
"""How long calls wait at most until the store is asked again: processes may have ended, which wakes nobody."""


class ClusterConcurrency(ConcurrencyLimit):
    """At most `total` calls at once in all processes together; `queue` more wait in each process.

    `size` is the number of permits that this process has borrowed, under the name of its lease: they are free again
    when the lease ends. A process keeps a few for its next calls. Without the store, and with `share`, each process
    admits its part.
    """

    __slots__ = (
        "_asking",
        "_failures",
        "_name",
        "_processes",
        "_record",
        "_returning",
        "_tasks",
        "_wanted",
        "_writing",
        "share",
        "total",
    )

    def __init__(
        self,
        store: Store,
        processes: Processes,
        key: str,
        what: str,
        *,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        super().__init__(0, 0, what)
        self.total: int = 0
        self.share: bool = False
        self._processes = processes
        self._record = LoanRecord(store, key, self._count_loans)
        self._name = processes.name
        self._wanted = 0
        self._writing = asyncio.Lock()
        self._failures = StoreFailures(what, clock)
        self._tasks = BackgroundTasks()
        self._asking: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None

    def change(self, total: int, queue: int, *, share: bool) -> None:
        """Change the numbers; running and waiting calls keep their places."""
        self.total, self.share = total, share
        self.resize(self.size, queue)

    @property
    def usage(self) -> str:
        return (
            f"{self._taken} calls of {self.what} run and {len(self._waiting)} of {self.queue} wait here, "
            f"{self._record.lent.permits + self.size} of {self.total} permits are borrowed by all processes"
        )

    def refusal(self) -> Refusal | None:
        """Return the refusal by what this process knows, without asking the store."""
        if self._is_free() or len(self._waiting) < self.queue:
            return None
        return None if self._record.lent.permits + self.size < self.total else self._full()

    async def admit(self, deadline: float) -> Refusal | None:
        if self._is_free():
            self._taken += 1
            return None
        # Only the first asks the store by itself; later ones join the queue, for which `_ask` borrows in one request.
        if not self._waiting:
            refusal = await self._borrow_permit(deadline)
            # The queue may have filled while this call asked the store.
            if refusal is None or len(self._waiting) >= self.queue:
                return refusal
        elif len(self._waiting) >= self.queue:
            return self._full()
        if self._asking is None or self._asking.done():
            self._asking = self._tasks.start(self._ask(), f"toolplug-concurrency-{self.what}")
        await self._wait_in_queue(deadline)
        return None

    def on_end(self) -> None:
        super().on_end()
        if self.size - self._taken > self._spare and (self._returning is None or self._returning.done()):
            self._returning = self._tasks.start(self._return(), f"toolplug-concurrency-{self.what}")

    async def look(self) -> None:
        """Note which record there is, and write the loan again if it was lost. Raises `StoreError`."""
        await self._write()

    async def aclose(self) -> None:
        """Stop; what is borrowed is free when the lease has ended."""
        await self._tasks.cancel()

    @property
    def _chunk(self) -> int:
        # A quarter of an even share: few requests to the store, and idle processes keep little from the others.
        return max(self.total // 4 // (len(self._processes.others) + 1), 1)

    @property
    def _spare(self) -> int:
        """Permits that this process keeps for its next calls."""
        return self._chunk - 1

    def _is_free(self) -> bool:
        return not self._waiting and self._has_place()

    def _has_place(self) -> bool:
        # A lease that has ended frees the permits for others: calls by them would be too many, even if they are few.
        if self._taken < self.size and self._processes.valid and self._processes.name == self._name:
            return True
        part = self.total // (len(self._processes.others) + 1)
        return self.share and self._failures.recent and self._taken < part

    async def _count_loans(self, others: Mapping[str, Loans]) -> dict[str, Loans]:
        """Return the loans of the processes that run; earlier names of this one do not."""
        own = self._processes.name.partition(".")[0]
        running = await self._processes.running([name for name in others if name.partition(".")[0] != own])
        return {name: others[name] for name in others if name in running}

    async def _borrow_permit(self, deadline: float) -> Refusal | None:
        """Admit a call with a permit of the others, or return why there is none."""
        self._wanted += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._borrow(lambda: 0 if self._is_free() else self._wanted)
        finally:
            self._wanted -= 1
        if self._is_free():
            self._taken += 1
            return None
        return UNAVAILABLE if self._failures.recent else self._full()

    async def _borrow(self, wanted: Callable[[], int]) -> None:
        """Borrow permits, unless the store has failed a moment ago."""
        if self._failures.recent:
            return
        try:
            await self._write(wanted)
        except StoreError as error:
            self._failures.note(error)
        else:
            self._failures.over()

    async def _write(self, wanted: Callable[[], int] = lambda: 0, *, tell: bool = False) -> None:
        """Write the loan of this process, with as many more permits as are wanted and free. Raises `StoreError`."""
        async with self._writing:
            self._processes.check()
            name, size = self._processes.name, 0

            def own(lent: Lent) -> Loans:
                nonlocal size
                # Under a new lease nothing is borrowed yet, but the calls that run from before still count.
                size = max(self.size if name == self._name else 0, self._taken)
                more = wanted()
                if more and not lent.pause_s:
                    size += max(min(self.total - lent.permits - size, max(self._chunk, more)), 0)
                return (Loan(0.0, size),) if size else ()

            await self._record.write(name, own, tell=tell)
            self._processes.check()  # else the loan has ended, and counts for nobody
            self._name = name
            self.resize(size, self.queue)

    async def _return(self) -> None:
        """Return the permits that no call has, but for those that are kept."""
        # In a loop: calls end while the store is being written to, and this task is the only one that returns permits.
        while self.size - self._taken > self._spare:
            self.resize(self._taken + self._spare, self.queue)
            try:
                await self._write(tell=True)
            except StoreError:
                return  # the next change of the loan returns them as well

    async def _ask(self) -> None:
        """Borrow permits for the calls that wait, until none does."""
        while self._waiting:
            await self._borrow(lambda: len(self._waiting))
            if self._failures.recent:
                # Without the store the part of this process counts, for which no loan is needed.
                self._hand_on()
                await asyncio.sleep(RETRY_S)
            elif self._waiting:
                try:
                    await self._record.wait_for_return(LOOKS_AGAIN_S)
                except StoreError as error:
                    self._failures.note(error)

    def _full(self) -> Refusal:
        pause_s = self._record.lent.pause_s
        if pause_s:
            return record_lost(self.what, pause_s)
        return Refusal(f"{pluralize(self.total, 'call')} of {self.what} running already in all processes", 1.0)


PREFIX = f"{VOLATILE}limit/"
_MAX_LEVEL = 400
"""Characters of a level in a key; a longer one is hashed."""


class ClusterLimits:
    """The rates and concurrency limits with `scope: cluster`; used inside `async with`.

    Each limit has the record `~limit/LEVEL/rate` or `~limit/LEVEL/calls`. None is dropped before the end.
    """

    def __init__(self, store: Store, processes: Processes) -> None:
        self._store = store
        self._processes = processes
        self._rates: dict[str, ClusterRate] = {}
        self._permits: dict[str, ClusterConcurrency] = {}

    async def __aenter__(self) -> Self:
        self._processes.listen(self._look)
        return self

    async def __aexit__(self, *_: object) -> None:
        for limit in (*self._rates.values(), *self._permits.values()):
            await limit.aclose()

    def rate(self, level: Sequence[str], what: str, count: int, per_s: int, *, share: bool) -> ClusterRate:
        """Return the rate of this level, changed to these numbers; `share` is what to do without the store."""
        key = f"{_key(level)}/rate"
        if key not in self._rates:
            self._rates[key] = ClusterRate(self._store, self._processes, key, what)
        self._rates[key].resize(count, per_s, share=share)
        return self._rates[key]

    def permits(self, level: Sequence[str], what: str, size: int, queue: int, *, share: bool) -> ClusterConcurrency:
        """Return the concurrency limit of this level, changed to these numbers."""
        key = f"{_key(level)}/calls"
        if key not in self._permits:
            self._permits[key] = ClusterConcurrency(self._store, self._processes, key, what)
        self._permits[key].change(size, queue, share=share)
        return self._permits[key]

    async def _look(self) -> None:
        for limit in (*self._rates.values(), *self._permits.values()):
            await limit.look()


def _key(level: Sequence[str]) -> str:
    name = ",".join(quote(part, safe="") for part in level) or "all"
    return PREFIX + (name if len(name) <= _MAX_LEVEL else sha256(name.encode()).hexdigest())
