"""Scheduling the discovery of one server: when it is listed, how many at once, and the backoff after a failure."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from toolplug.catalog.text import clean_text, in_one_line, pluralize
from toolplug.parts.mcp.discovery.listing import ListReader
from toolplug.parts.mcp.discovery.record import (
    DiscoveryRecord,
    KnownServer,
    Listing,
    ListingFailed,
    ServerName,
    ServerState,
    TooManyNames,
    begin_listing,
    changes,
    discovering,
    record_failure,
    record_success,
    with_newer_tools,
)
from toolplug.parts.mcp.discovery.record_store import Records
from toolplug.runtime.backoff import pause_after

FIRST_S = 30.0
LONGEST_S = 3600.0


def backoff_s(failures: int, luck: float) -> float:
    """Return the seconds to wait after so many failures in a row: 30 s after the first, doubling up to an hour.

    `luck`, a random number from 0 to 1, shortens them by up to a quarter, so that retries of many servers spread out.
    """
    return pause_after(failures, FIRST_S, LONGEST_S) * (1 - luck / 4)


AT_ONCE = 4
SLOW = 12
PATIENCE_S = 2.0


class FairSemaphore:
    """Admits a few listings at a time, in order; those that take long make room for the ones that wait.

    `at_once` listings run at a time. One that runs for `patience_s` seconds moves to at most `slow` further places, so
    that a few servers that hang do not delay the others for longer than that.
    """

    def __init__(self, *, at_once: int = AT_ONCE, slow: int = SLOW, patience_s: float = PATIENCE_S) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._max_slow = slow
        self._patience_s = patience_s
        self._slow: set[object] = set()
        self._overdue: deque[object] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Wait for a place, and hold it inside the block."""
        await self._places.acquire()
        stay = object()
        timer = asyncio.get_running_loop().call_later(self._patience_s, self._takes_long, stay)
        try:
            yield
        finally:
            timer.cancel()
            self._leave(stay)

    def _takes_long(self, stay: object) -> None:
        self._overdue.append(stay)
        self._make_room()

    def _make_room(self) -> None:
        while self._overdue and len(self._slow) < self._max_slow:
            self._slow.add(self._overdue.popleft())
            self._places.release()

    def _leave(self, stay: object) -> None:
        if stay in self._slow:
            self._slow.remove(stay)
            self._make_room()
            return
        if stay in self._overdue:
            self._overdue.remove(stay)
        self._places.release()


DEBOUNCE_S = 0.3
SPACING_S = 1.0
"""Between two listings after changes that a server announces."""
LEASE_S = 10.0
"""How long the listing of another process holds after its last renewal."""
RENEWAL_S = 3.0
"""Between two renewals of the lease of a listing."""
MAX_ERROR = 500
"""Characters of an error's text."""

_LOG = logging.getLogger("toolplug.discovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryServices:
    """What all watched servers of a process share.

    The name of every listing begins with `process`. `listings` holds those that run, also cancelled ones that have not
    ended: a server's next listing waits for them. `luck()` returns a random number from 0 to 1.
    """

    records: Records
    places: FairSemaphore
    process: str
    luck: Callable[[], float]
    notify: Callable[[ServerName, DiscoveryRecord], None]
    listings: dict[ServerName, asyncio.Task[Sequence[object]]] = field(
        default_factory=dict[ServerName, asyncio.Task[Sequence[object]]]
    )


class WatchedServer:
    """Lists one server whenever it is due, in a task of its own.

    `shown` is the record for readers. Stored states of another configuration are ignored: another process may have
    read a changed configuration earlier or later.
    """

    def __init__(self, server: KnownServer, services: DiscoveryServices, before: WatchedServer | None) -> None:
        """Begin from the stored state; `before` watched the server in another configuration until now."""
        self.server: KnownServer = server
        self.settled: asyncio.Event = asyncio.Event()
        self.reader: ListReader = ListReader(server.name.id)
        self._services = services
        kept = services.records.state_of(server.name)
        self._own = kept if before is None else with_newer_tools(kept, before._own)
        self.shown: DiscoveryRecord = kept.record if before is None else before.shown
        self._owed = self._needs_listing()
        self._fresh = False
        self._rests_until = 0.0
        self._due_at: float | None = None
        self._due_since = 0.0
        self._began_at: float | None = None
        self._listing = ""
        self._before = self._own
        self._listings = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Show the record, and start the task that lists the server."""
        self._show()
        self._task = asyncio.create_task(self._work(), name=f"toolplug-discovery-{self.server.name.id}")

    def configure(self, server: KnownServer) -> None:
        """Go on with another timeout, pin or interval of the same configuration."""
        self.server = server
        self._wake.set()
        if self._needs_listing():
            self.ask()

    def listed_since(self, seconds: float) -> bool:
        """Return True if the present tools were listed by a process in the last so many seconds."""
        return self._own.record.status == "success" and self._services.records.now() - self._own.began_at < seconds

    def ask(self) -> None:
        """List the server now in a fresh process, unless a listing is in progress."""
        if not self._listing:
            self._owed = self._fresh = True
            self._show()
            self._wake.set()

    def due(self) -> None:
        """List the server soon, since its list may have changed; at most once in `SPACING_S`.

        A listing of another process that begins after this call counts.
        """
        self._due_since = self._services.records.now()
        if self._due_at is None:
            now = asyncio.get_running_loop().time()
            earliest = now if self._began_at is None else self._began_at + SPACING_S
            self._due_at = max(now + DEBOUNCE_S, earliest)
            self._wake.set()

    def adopt(self, kept: ServerState) -> None:
        """Take over a changed state, of this or another process."""
        if kept.config_hash != self.server.config_hash:
            return
        self._own = with_newer_tools(kept, self._own)
        if kept.record.status == "success" and kept.began_at > self._due_since:
            self._due_at = None
        if kept.record.status != "discovering":
            self._owed = False
        self._show()
        self._wake.set()

    def base(self, kept: ServerState) -> ServerState:
        """Return the state to which the result of a listing of this configuration is applied."""
        own = self._own
        if own.config_hash == self.server.config_hash != kept.config_hash:
            return own
        return with_newer_tools(kept, own)

    def cancel(self) -> None:
        """Stop listing; the result of a listing in progress is dropped."""
        if self._task is not None:
            self._task.cancel()
        self.settled.set()

    async def stop(self) -> None:
        """Stop listing, and restore the record from before the listing in progress."""
        self.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})
        listing, before = self._listing, self._before
        if listing:
            await self._services.records.change(
                self.server.name, lambda kept: before if kept.attempt == listing else None
            )

    def outcome(self, kept: ServerState, result: Listing | str) -> ServerState:
        """Return the state after a listing with this result; text is the error of a failed one."""
        now = self._services.records.now()
        config_hash = self.server.config_hash
        if isinstance(result, Listing):
            try:
                announces = self.server.announces()
                announces = kept.record.announces_changes if announces is None else announces
                return record_success(kept, config_hash, result, at=now, pin=self.server.pin, announces=announces)
            except TooManyNames as error:
                result = str(error)
        rest_s = backoff_s(kept.failures + 1, self._services.luck())
        return record_failure(kept, config_hash, result, at=now, retry_at=now + rest_s)

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
            self._services.notify(self.server.name, record)

    async def _work(self) -> None:
        while True:
            while (delay_s := self._delay_s()) != 0:
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay_s):
                        await self._wake.wait()
            try:
                await self._list()
            except Exception:  # noqa: BLE001  a named boundary: the server is listed again later
                _LOG.exception("the discovery of server %r failed", self.server.name.id)
                self._listing = ""
                self._rest(FIRST_S)

    def _delay_s(self) -> float | None:
        """Return the seconds until the next listing begins, None while none is due."""
        own, now = self._own, self._services.records.now()
        loop_now = asyncio.get_running_loop().time()
        if own.record.status == "discovering" and own.config_hash == self.server.config_hash:
            delay_s = self._lease_left_s(own)
        elif self._owed:
            delay_s = 0.0
        elif own.retry_at is not None:
            delay_s = own.retry_at - now
            if delay_s > backoff_s(own.failures, 0.0) + SPACING_S:
                delay_s = 0.0  # no backoff is so long: the clock was set back
        else:
            waits = [] if self._due_at is None else [self._due_at - loop_now]
            rediscover_s = self.server.rediscover_s
            if rediscover_s is not None:
                waits.append(min(own.found_at + rediscover_s - now, rediscover_s))  # the clock may be set back
            if not waits:
                return None
            delay_s = min(waits)
        return max(delay_s, self._rests_until - loop_now, 0)

    def _lease_left_s(self, kept: ServerState) -> float:
        """Return the seconds left of another process's listing; 0 for none, and for one that this process dropped.

        More than a lease is left only if the clock was set back, and counts as nothing.
        """
        if not kept.attempt or kept.attempt.startswith(self._services.process):
            return 0
        left_s = kept.believed_until - self._services.records.now()
        return left_s if 0 < left_s <= LEASE_S else 0

    async def _list(self) -> None:
        """Make one listing, unless another process makes it."""
        async with self._services.places.place():
            free = await self._last_has_ended()
            due_at, self._due_at = self._due_at, None
            self._began_at = asyncio.get_running_loop().time()
            self._listings += 1
            listing = f"{self._services.process}.{id(self)}.{self._listings}"
            self._listing = listing
            if await self._services.records.change(self.server.name, partial(self._begin, listing)):
                before = self._own.record
                result = await self._read_list() if free else "its last listing, which was given up, has not ended yet"
                await self._end(listing, result, before)
            else:
                self._due_at = self._due_at or due_at  # the list of the other process may be older than this request
                self._rest(SPACING_S)
            self._listing = ""

    def _begin(self, listing: str, kept: ServerState) -> ServerState | None:
        if kept.config_hash == self.server.config_hash and self._lease_left_s(kept):
            return None
        self._before = kept
        now = self._services.records.now()
        return begin_listing(self.base(kept), self.server.config_hash, attempt=listing, at=now, until=self._lease_end())

    def _renew(self, kept: ServerState) -> ServerState | None:
        return replace(kept, believed_until=self._lease_end()) if kept.attempt == self._listing else None

    def _lease_end(self) -> float:
        return self._services.records.now() + LEASE_S

    async def _read_list(self) -> Listing | str:
        """Return the list that the server gives within its timeout, or the error."""
        task = self._start()
        now = asyncio.get_running_loop().time
        until = now() + self.server.timeout_s
        try:
            while not await _wait_for_end(task, min(until - now(), RENEWAL_S)) and now() < until:
                await self._services.records.change(self.server.name, self._renew)
        finally:
            task.cancel()
        if not task.done():
            return f"no list of tools within {self.server.timeout_s:g} s"
        if task.cancelled():
            return "the listing was cancelled"
        error = task.exception()
        if error is None:
            return await self.reader.read(task.result(), self._own, self.server.offers())
        if isinstance(error, ListingFailed):
            return in_one_line(clean_text(str(error)))[:MAX_ERROR]
        _LOG.error("listing the tools of server %r raised", self.server.name.id, exc_info=error)
        return f"the listing failed: {type(error).__name__}"

    def _start(self) -> asyncio.Task[Sequence[object]]:
        name, listings = self.server.name, self._services.listings
        fresh, self._fresh = self._fresh, False
        task = asyncio.create_task(self.server.listing(fresh), name=f"toolplug-listing-{name.id}")
        listings[name] = task

        def forget_listing(task: asyncio.Task[Sequence[object]]) -> None:
            if listings.get(name) is task:
                del listings[name]
            if not task.cancelled():
                task.exception()  # retrieved, since a listing that was given up is not awaited

        task.add_done_callback(forget_listing)
        return task

    async def _last_has_ended(self) -> bool:
        """Wait for a listing that was given up, at most the timeout of one; return whether it has ended."""
        last = self._services.listings.get(self.server.name)
        return last is None or await _wait_for_end(last, self.server.timeout_s)

    async def _end(self, listing: str, result: Listing | str, before: DiscoveryRecord) -> None:
        """Save the result, if the record still waits for it."""
        name, records = self.server.name, self._services.records
        if await records.change(name, lambda kept: self.outcome(kept, result) if kept.attempt == listing else None):
            self._report(before)
            return
        kept = records.state_of(name)
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
        level = logging.DEBUG if not any(difference) else logging.INFO
        tools = pluralize(len(record.tools), "tool")
        _LOG.log(level, "server %r lists %s: %s", self.server.name.id, tools, difference)

    def _rest(self, seconds: float) -> None:
        self._rests_until = asyncio.get_running_loop().time() + seconds


async def _wait_for_end(task: asyncio.Task[Sequence[object]], within_s: float) -> bool:
    """Wait for a task at most so many seconds, and return whether it has ended."""
    await asyncio.wait({task}, timeout=max(within_s, 0.0))
    return task.done()
