"""The limits of one host that hold for all processes of its store.

A limit of calls at once that holds for all processes of a store together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
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
from toolplug.cluster.processes import Processes, since_boot
from toolplug.cluster.rate import ClusterRate
from toolplug.errors import StoreError
from toolplug.execution.limiters import ConcurrencyLimit
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import VOLATILE, Store

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
