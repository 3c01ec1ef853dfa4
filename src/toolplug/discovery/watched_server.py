"""Scheduling the discovery of one server: when it is listed, how many at once, and the backoff after a failure."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from toolplug.catalog.text import cleaned, counted, in_one_line
from toolplug.discovery.listing import ListReader
from toolplug.discovery.record import (
    NO_CHANGE,
    DiscoveryRecord,
    KnownServer,
    Listing,
    ListingFailed,
    ServerName,
    ServerState,
    TooManyNames,
    begun,
    changes,
    discovering,
    failed,
    succeeded,
    with_newer_tools,
)
from toolplug.discovery.record_store import Records

FIRST_S = 30.0
LONGEST_S = 3600.0
_DOUBLED_AT_MOST = 10


def backoff_s(failures: int, luck: float) -> float:
    """After so many failures in a row, the first is 1: 30 s doubling to an hour, of which up to a quarter is left out.

    `luck` is drawn from 0 to 1, so that servers that failed together are not tried together.
    """
    whole = min(FIRST_S * 2 ** min(failures - 1, _DOUBLED_AT_MOST), LONGEST_S)
    return whole * (1 - luck / 4)


AT_ONCE = 4
SLOW = 12
PATIENCE_S = 2.0


class _Stay:
    """One who has a place; `slow` when it has gone over to the others that take long."""

    __slots__ = ("slow", "timer")

    def __init__(self) -> None:
        self.slow = False
        self.timer: asyncio.TimerHandle | None = None


class FairSemaphore:
    """A few places for all, first come, first served; whoever has taken long makes room for those who wait.

    `at_once` are served at a time. After `patience_s` one goes over to at most `slow` others that take long, which have
    places of their own: so a few servers that hang delay nobody for longer than that.
    """

    def __init__(self, *, at_once: int = AT_ONCE, slow: int = SLOW, patience_s: float = PATIENCE_S) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._room = slow
        self._patience_s = patience_s
        self._overdue: deque[_Stay] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Wait for a place and have it inside."""
        await self._places.acquire()
        stay = _Stay()
        stay.timer = asyncio.get_running_loop().call_later(self._patience_s, self._takes_long, stay)
        try:
            yield
        finally:
            stay.timer.cancel()
            self._leave(stay)

    def _takes_long(self, stay: _Stay) -> None:
        self._overdue.append(stay)
        self._go_over()

    def _go_over(self) -> None:
        while self._overdue and self._room:
            stay = self._overdue.popleft()
            stay.slow = True
            self._room -= 1
            self._places.release()

    def _leave(self, stay: _Stay) -> None:
        if stay.slow:
            self._room += 1
            self._go_over()
            return
        if stay in self._overdue:
            self._overdue.remove(stay)
        self._places.release()


DEBOUNCE_S = 0.3
SPACING_S = 1.0
"""Between two listings that a server asks for by saying that its list has changed."""
LEASE_S = 10.0
"""A listing of another process is believed in for so long after its last sign."""
SIGN_S = 3.0
"""Between two signs of a listing that takes long."""
MAX_ERROR = 500
"""Characters of an error's text."""

_LOG = logging.getLogger("toolplug.discovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryServices:
    """What all known servers of a process share.

    `process` begins the name of every listing that it makes. `listings` are those that run, also those that were
    cancelled and have not ended: no other of the same server begins meanwhile. `luck` draws from 0 to 1.
    """

    records: Records
    places: FairSemaphore
    process: str
    luck: Callable[[], float]
    told: Callable[[ServerName, DiscoveryRecord], None]
    listings: dict[ServerName, asyncio.Task[Sequence[object]]] = field(
        default_factory=dict[ServerName, asyncio.Task[Sequence[object]]]
    )


class Watched:
    """Asks for the list when it is due, one at a time, in a task of its own.

    `shown` is what everybody reads. What is kept for another configuration than this one is not heeded: another process
    may have been told of a change earlier, or later.
    """

    def __init__(self, server: KnownServer, around: DiscoveryServices, before: Watched | None) -> None:
        """`before` is what watched it in another configuration until now."""
        self.server: KnownServer = server
        self.settled: asyncio.Event = asyncio.Event()
        self.reader: ListReader = ListReader(server.name.id)
        self._around = around
        kept = around.records.kept(server.name)
        self._own = kept if before is None else with_newer_tools(kept, before._own)
        self.shown: DiscoveryRecord = kept.record if before is None else before.shown
        self._owed = self._needs_listing()
        self._fresh = False
        self._rests_until = 0.0
        self._due_at: float | None = None
        self._began_at: float | None = None
        self._listing = ""
        self._before = self._own
        self._listings = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask."""
        self._show()
        self._task = asyncio.create_task(self._work(), name=f"toolplug-discovery-{self.server.name.id}")

    def configure(self, server: KnownServer) -> None:
        """The same configuration, with another time limit, pin or interval."""
        self.server = server
        self._wake.set()
        if self._needs_listing():
            self.ask()

    def ask(self) -> None:
        """A listing is to be made now, by a new process, or joined where one is under way."""
        if not self._listing:
            self._owed = self._fresh = True
            self._show()
            self._wake.set()

    def due(self) -> None:
        """The list may have changed: look soon, and not too often."""
        if self._due_at is None:
            now = asyncio.get_running_loop().time()
            earliest = now if self._began_at is None else self._began_at + SPACING_S
            self._due_at = max(now + DEBOUNCE_S, earliest)
            self._wake.set()

    def adopt(self, kept: ServerState) -> None:
        """What is kept has changed, here or in another process."""
        if kept.config_hash != self.server.config_hash:
            return
        self._own = with_newer_tools(kept, self._own)
        if kept.record.status != "discovering":
            self._owed = False
        self._show()
        self._wake.set()

    def base(self, kept: ServerState) -> ServerState:
        """What a listing of this configuration begins from, and its result is put on."""
        own = self._own
        if own.config_hash == self.server.config_hash != kept.config_hash:
            return own
        return with_newer_tools(kept, own)

    def cancel(self) -> None:
        """Ask no more; what is under way leads to nothing."""
        if self._task is not None:
            self._task.cancel()
        self.settled.set()

    async def stop(self) -> None:
        """The same; the record is again as it was before what is under way."""
        self.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})
        listing, before = self._listing, self._before
        if listing:
            await self._around.records.change(
                self.server.name, lambda kept: before if kept.attempt == listing else None
            )

    def outcome(self, kept: ServerState, result: Listing | str) -> ServerState:
        """What is kept when a listing has ended, well or with an error."""
        now = self._around.records.now()
        config_hash = self.server.config_hash
        if isinstance(result, Listing):
            try:
                announces = self.server.announces()
                announces = kept.record.announces_changes if announces is None else announces
                return succeeded(kept, config_hash, result, at=now, pin=self.server.pin, announces=announces)
            except TooManyNames as error:
                result = str(error)
        rest_s = backoff_s(kept.failures + 1, self._around.luck())
        return failed(kept, config_hash, result, at=now, retry_at=now + rest_s)

    def _needs_listing(self) -> bool:
        own = self._own
        if own.config_hash != self.server.config_hash or own.record.status == "never":
            return True
        return bool(own.pins) and not self.server.pin

    def _show(self) -> None:
        record = self._own.record
        if self._owed:
            record = discovering(record, self.server.config_hash)
        if record.status == "discovering":
            self.settled.clear()
        else:
            self.settled.set()
        if record != self.shown:
            self.shown = record
            self._around.told(self.server.name, record)

    async def _work(self) -> None:
        while True:
            while (delay_s := self._delay_s()) != 0:
                self._wake.clear()
                await _set(self._wake, delay_s)
            try:
                await self._list()
            except Exception:  # noqa: BLE001  a named boundary: the server is listed again later
                _LOG.exception("the discovery of server %r failed", self.server.name.id)
                self._listing = ""
                self._rest(FIRST_S)

    def _delay_s(self) -> float | None:
        """How long until a listing begins; None while nothing asks for one."""
        own, now = self._own, self._around.records.now()
        loop_now = asyncio.get_running_loop().time()
        if own.record.status == "discovering" and own.config_hash == self.server.config_hash:
            delay_s = self._believed_s(own)
        elif self._owed:
            delay_s = 0.0
        elif own.retry_at is not None:
            delay_s = own.retry_at - now
            if delay_s > backoff_s(own.failures, 0.0) + SPACING_S:
                delay_s = 0.0  # nobody rests so long: the clock was put back
        else:
            waits = [] if self._due_at is None else [self._due_at - loop_now]
            rediscover_s = self.server.rediscover_s
            if rediscover_s is not None:
                waits.append(min(own.found_at + rediscover_s - now, rediscover_s))  # the clock may be put back
            if not waits:
                return None
            delay_s = min(waits)
        return max(delay_s, self._rests_until - loop_now, 0)

    def _believed_s(self, kept: ServerState) -> float:
        """How long another process's listing is still believed in; one of this process that was given up, not at all.

        What is longer than a lease comes of a clock that was put back.
        """
        if not kept.attempt or kept.attempt.startswith(self._around.process):
            return 0
        left_s = kept.believed_until - self._around.records.now()
        return left_s if 0 < left_s <= LEASE_S else 0

    async def _list(self) -> None:
        """Make one listing, unless another process is about it."""
        async with self._around.places.place():
            free = await self._last_has_ended()
            due_at, self._due_at = self._due_at, None
            self._began_at = asyncio.get_running_loop().time()
            self._listings += 1
            listing = f"{self._around.process}.{id(self)}.{self._listings}"
            self._listing = listing
            if await self._around.records.change(self.server.name, partial(self._begun, listing)):
                before = self._own.record
                result = await self._listed() if free else "its last listing, which was given up, has not ended yet"
                await self._end(listing, result, before)
            else:
                self._due_at = self._due_at or due_at  # the other one's list may be older than this
                self._rest(SPACING_S)
            self._listing = ""

    def _begun(self, listing: str, kept: ServerState) -> ServerState | None:
        if kept.config_hash == self.server.config_hash and self._believed_s(kept):
            return None
        self._before = kept
        return begun(self.base(kept), self.server.config_hash, attempt=listing, until=self._lease_end())

    def _goes_on(self, kept: ServerState) -> ServerState | None:
        return replace(kept, believed_until=self._lease_end()) if kept.attempt == self._listing else None

    def _lease_end(self) -> float:
        return self._around.records.now() + LEASE_S

    async def _listed(self) -> Listing | str:
        """The list that the server gives within its time, or why there is none."""
        task = self._started()
        now = asyncio.get_running_loop().time
        until = now() + self.server.timeout_s
        try:
            while await _runs_on(task, min(until - now(), SIGN_S)) and now() < until:
                await self._around.records.change(self.server.name, self._goes_on)
        finally:
            task.cancel()
        if not task.done():
            return f"no list of tools within {self.server.timeout_s:g} s"
        if task.cancelled():
            return "the listing was cancelled"
        error = task.exception()
        if error is None:
            return await self.reader.read(task.result(), self._own)
        if isinstance(error, ListingFailed):
            return in_one_line(cleaned(str(error)))[:MAX_ERROR]
        _LOG.error("listing the tools of server %r raised", self.server.name.id, exc_info=error)
        return f"the listing failed: {type(error).__name__}"

    def _started(self) -> asyncio.Task[Sequence[object]]:
        name, listings = self.server.name, self._around.listings
        fresh, self._fresh = self._fresh, False
        task = asyncio.create_task(_awaited(self.server, fresh), name=f"toolplug-listing-{name.id}")
        listings[name] = task

        def ended(task: asyncio.Task[Sequence[object]]) -> None:
            if listings.get(name) is task:
                del listings[name]
            if not task.cancelled():
                task.exception()  # of one that was given up, nobody else asks for it

        task.add_done_callback(ended)
        return task

    async def _last_has_ended(self) -> bool:
        """Wait for a listing that was given up, as long as a listing may take."""
        last = self._around.listings.get(self.server.name)
        if last is not None:
            await asyncio.wait({last}, timeout=self.server.timeout_s)
        return last is None or last.done()

    async def _end(self, listing: str, result: Listing | str, before: DiscoveryRecord) -> None:
        """Keep the result, if the record still waits for it."""
        name, records = self.server.name, self._around.records
        if await records.change(name, lambda kept: self.outcome(kept, result) if kept.attempt == listing else None):
            self._report(before)
            return
        kept = records.kept(name)
        if not kept.config_hash:
            _LOG.info("the list of server %r is dropped: its record was deleted in the meantime", name.id)
            self._owed = True
            self._rest(SPACING_S)
        elif kept.config_hash != self.server.config_hash:
            _LOG.warning("the list of server %r is dropped: another process has another configuration of it", name.id)
            self._owed = False
            self._own = self.outcome(self._own, "another process has another configuration of this server")
            self._show()

    def _report(self, before: DiscoveryRecord) -> None:
        record = self._own.record
        if record.error is not None:
            _LOG.warning("the tools of server %r are not known: %s", self.server.name.id, record.error)
            return
        difference = changes(before.tools, record.tools)
        level = logging.DEBUG if difference == NO_CHANGE else logging.INFO
        tools = counted(len(record.tools), "tool")
        _LOG.log(level, "server %r lists %s: %s", self.server.name.id, tools, difference)

    def _rest(self, seconds: float) -> None:
        self._rests_until = asyncio.get_running_loop().time() + seconds


async def _set(event: asyncio.Event, within_s: float | None) -> None:
    """Wait until it is set, or for so long."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return


async def _runs_on(task: asyncio.Task[Sequence[object]], after_s: float) -> bool:
    """Wait for a task, at most so long: does it still run."""
    await asyncio.wait({task}, timeout=max(after_s, 0.0))
    return not task.done()


async def _awaited(server: KnownServer, fresh: bool) -> Sequence[object]:
    return await server.listing(fresh)
