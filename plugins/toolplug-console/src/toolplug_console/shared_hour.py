"""The hour in all processes of a store, and after a restart: what was counted is written every five seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from secrets import token_hex
from time import time
from typing import Protocol, cast

import orjson

from toolplug import Principal, ProviderStore, StoreError
from toolplug_console.feed import CallFeed
from toolplug_console.hour import TICK_S, TICKS, CalledTool, Hour, Tick, bucket_of
from toolplug_console.seen_call import NOT_REACHED, SHARED, SeenCall

OWNER = Principal("console", "*")
"""Whose records they are: of all tenants together, as the console itself is."""
PREFIX = "hour/"
MAX_CALLS_OF_TICK = 40
"""Calls that a process passes on in one tick; the hour's numbers are of all."""
MAX_TICKS_READ = 2_000
"""Ticks of other processes that are read at once: an hour of two processes, or a minute of 160."""
LATE_TICKS = 12
"""Ticks that are looked for again: another process may have written one later than this one looked for it."""
MAX_LOGGED = 50
"""Pages of a thousand calls that are read of a journal."""
PAGE = 1_000


class LoggedCall(Protocol):
    """A call that a journal has kept; `status` is None while it runs."""

    id: int
    ts: float
    subject: str
    tool: str
    call_id: str
    status: str | None
    duration_s: float | None


class CallLog(Protocol):
    """A provider that keeps calls, as `toolplug-journal` does. Its places are microseconds since the epoch."""

    async def collect(self, after: int, limit: int, now: float) -> list[tuple[str, LoggedCall]]:
        """Return the calls of every tenant after this place, the oldest first."""
        ...


class SharedHour:
    """Writes what this process has counted to the store, and adds what others have, and what was before the start."""

    def __init__(
        self, feed: CallFeed, hour: Hour, store: ProviderStore, log: logging.Logger, clock: Callable[[], float] = time
    ) -> None:
        self._feed = feed
        self._hour = hour
        self._store = store
        self._log = log
        self._clock = clock
        self._name = token_hex(4)
        self._read: set[str] = set()
        self._begun = False
        self._failing = False
        self._unreadable = False
        self._busy = asyncio.Lock()

    async def run(self) -> None:
        """Exchange ticks until this is cancelled."""
        while True:
            await self.write_and_read()
            await asyncio.sleep(TICK_S - self._clock() % TICK_S + 0.1)  # a little after each tick has ended

    async def write_and_read(self) -> None:
        """Write the ticks of this process that have ended, and read those of others. A store that fails is logged."""
        async with self._busy:
            try:
                await self._write()
                await self._read_others()
                self._failing = False
            except StoreError as error:
                if not self._failing:
                    self._log.warning("the last hour is not shared with other processes: %s", error)
                self._failing = True

    async def write_rest(self) -> None:
        """Write the tick that is still open too: this process ends."""
        with suppress(StoreError):
            await self._write(ending=True)

    async def _write(self, *, ending: bool = False) -> None:
        calls = self._feed.take_shared()[-MAX_CALLS_OF_TICK:]
        for number, numbers in self._hour.take_ended(ending=ending):
            ended = (number + 1) * TICK_S
            shared = [call.as_shared() for call in calls if call.ts < ended]
            calls = [call for call in calls if call.ts >= ended]
            key = f"{PREFIX}{number:011d}/{self._name}"
            self._read.add(key)
            await self._store.commit(key, orjson.dumps({"numbers": numbers, "calls": shared}), ttl_s=TICKS * TICK_S)
        self._feed.share_later(calls)

    async def _read_others(self) -> None:
        now = int(self._clock()) // TICK_S
        # At first the whole hour, which is that of this process before its restart too.
        since = now - (LATE_TICKS if self._begun else TICKS)
        keys = await self._store.keys(PREFIX, after=f"{PREFIX}{since:011d}", limit=MAX_TICKS_READ)
        for key in keys:
            if key not in self._read:
                record = await self._store.read(key)
                if record is not None:
                    self._add(key, record.value)
        late = f"{PREFIX}{now - LATE_TICKS - 1:011d}"
        self._read = {key for key in self._read.union(keys) if key > late}
        self._begun = True

    def _add(self, key: str, value: bytes) -> None:
        """Add a tick of another process, whose release may know more of a call, or count otherwise."""
        try:
            tick = orjson.loads(value)
            calls = [SeenCall(**{name: call[name] for name in SHARED if name in call}) for call in tick["calls"]]
            self._hour.add(int(key.split("/")[1]), tick["numbers"])
            self._feed.add(calls)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            if not self._unreadable:
                self._log.warning("calls that another process has counted cannot be read: %r", error)
            self._unreadable = True

    async def fill(self, log: CallLog, homes: Mapping[str, str]) -> None:
        """Add the calls of a journal that ended in ticks of which nothing is known; `homes` has a tool's provider."""
        if not self._begun:
            await self.write_and_read()
        now, known = self._clock(), self._hour.known_ticks()
        place, found = int((now - TICKS * TICK_S) * 1_000_000), list[tuple[str, LoggedCall]]()
        for _ in range(MAX_LOGGED):
            page = await log.collect(place, PAGE, now)
            ended = [(tenant, call) for tenant, call in page if call.status and _tick_of(call) not in known]
            ticks: dict[int, Tick] = {}
            for tenant, call in ended:
                number, home = _tick_of(call), homes.get(call.tool, "")
                name = "" if call.duration_s is None else call.tool
                called = CalledTool(tenant, "native" if home else "", home, name)
                tick = ticks.setdefault(number, Tick(number))
                took_s = 0.0 if call.status in NOT_REACHED else call.duration_s or 0.0
                tick.count(called, bucket_of(took_s), 1, failed=call.status != "success")
            for number, tick in ticks.items():
                self._hour.add(number, tick.numbers())
            found = [*found, *ended][-self._feed.remembered :]
            if len(page) < PAGE:
                break
            place = page[-1][1].id
        self._feed.add([_seen_call(tenant, call, homes.get(call.tool, "")) for tenant, call in found])


def call_log(plugin: object) -> CallLog | None:
    """Return the plugin as a log of calls, if it can be read as one."""
    return cast("CallLog", plugin) if hasattr(plugin, "collect") else None


def _end_of(call: LoggedCall) -> float:
    return call.ts + (call.duration_s or 0.0)


def _tick_of(call: LoggedCall) -> int:
    return int(_end_of(call)) // TICK_S


def _seen_call(tenant: str, call: LoggedCall, home: str) -> SeenCall:
    return SeenCall(
        id=call.id,
        ts=round(_end_of(call), 3),
        tool=call.tool,
        kind="native" if home else "",
        source=home,
        tenant=tenant,
        subject=call.subject,
        agent=None,
        session=None,
        call_id=call.call_id,
        request_id="",
        trace_id="",
        conversation="",
        approval="",
        status=call.status or "",
        reason="",
        duration_s=round(call.duration_s or 0.0, 7),
        sensitive=False,
    )
