"""Services, limits and counters that the sessions of one host share, and their background work."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from toolplug.config.quotas import NO_QUOTAS, Quotas
from toolplug.errors import StoreError
from toolplug.execution.accounting import CallCounters
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.live import LiveCatalog
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.sessions.events import LogEntry
from toolplug.sessions.plans import Planner
from toolplug.sessions.session_tool import DefinitionCache, PluginStatus, StreamRole
from toolplug.stores.store import Record, Store

_LOG = logging.getLogger("toolplug.sessions")

T = TypeVar("T")


class SessionCallbacks(Protocol):
    """What the parts of one session (its event streams, relay, presence and expiry) ask of the session itself."""

    code: str

    @property
    def revision(self) -> int: ...

    @property
    def attached(self) -> bool:
        """Whether a stream of the plugin is open, which counts as a sign of it for as long as it is."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether the plugin is attached, or may return within the grace time."""
        ...

    @property
    def max_waiting(self) -> int:
        """The number of calls that may wait at once."""
        ...

    def now(self) -> float: ...

    def connected(self, record: Record) -> bytes:
        """The data of `connected` for a snapshot of the record, which is adopted where it is newer."""
        ...

    def resumed(self) -> bytes:
        """The data of `connected` for a reader that resumes where it was."""
        ...

    async def refresh(self) -> object:
        """Read the record again: another process has changed it."""
        ...

    def over(self) -> None:
        """The record has expired: ends the session's streams."""
        ...

    def has_room(self) -> None:
        """A stream whose queue was full has been read."""
        ...

    def began_again(self, role: StreamRole, stream: str) -> None:
        """The stream has dropped what it was sent."""
        ...

    def tell(self, stream: str, event: str, data: bytes, logged: bytes) -> bool:
        """Send an event to one stream at once, and write `logged` to the session's log soon.

        False where the stream has no room now; `send_waiting` follows when it may have.
        """
        ...

    async def log(self, entry: LogEntry) -> bool:
        """Append to the session's log; False where the session is over, which ends the relay. Raises `StoreError`."""
        ...

    def reachability_changed(self) -> None:
        """`reachable` has changed."""
        ...

    def status_changed(self, status: PluginStatus) -> None:
        """The plugin has attached or detached."""
        ...

    async def keep_sign(self, ttl_s: float) -> None:
        """Keep the record for this long from now on. Raises `StoreError`."""
        ...

    async def expire(self) -> None:
        """End the session, unless its record says that it lives on. Raises `StoreError`."""
        ...


class Background:
    """Tasks that end with the sessions; what one of them raises is logged and costs no other."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._unbroken: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Run the work as a task of this name."""
        task = asyncio.create_task(_logged(work, name), name=f"toolplug-{name}")
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            work.close()  # it was not begun where the task was cancelled before its first step

        task.add_done_callback(ended)
        return task

    async def unbroken(self, work: Coroutine[None, None, T], name: str) -> T:
        """Do the work to its end, also where its caller goes away meanwhile or the sessions are closed."""
        task = asyncio.create_task(work, name=f"toolplug-{name}")
        self._unbroken.add(task)
        task.add_done_callback(self._unbroken.discard)
        return await asyncio.shield(task)

    def finish(self, work: Coroutine[None, None, None], name: str) -> None:
        """Do the work to its end, also where the sessions are closed."""
        task = asyncio.create_task(_logged(work, name), name=f"toolplug-{name}")
        self._unbroken.add(task)
        task.add_done_callback(self._unbroken.discard)

    async def aclose(self) -> None:
        """Cancel what still runs, but for what is unbroken, and wait for all of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._unbroken, return_exceptions=True)


async def _logged(work: Coroutine[None, None, None], name: str) -> None:
    try:
        await work
    except StoreError as error:
        _LOG.error("%s: %s", name, error)
    except Exception:  # noqa: BLE001  a named boundary: nobody waits who could hear it
        _LOG.exception("%s failed", name)


MAX_TOOLS = 1000
MAX_SET_BYTES = 8 * 1024 * 1024
"""All definitions of one session together: what one registration can bring."""
MAX_ENVIRONMENT_BYTES = 64 * 1024
"""Capabilities and environment together."""
MIN_TTL_S = 1
MAX_TTL_S = 86_400
HEARTBEAT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """The operator's limits. `ttl_s`: from the plugin's last sign; `grace_s`: from its last stream's end."""

    ttl_s: float = 3600.0
    grace_s: float = 30.0
    max_tools: int = 256
    max_updates_per_minute: int = 10
    max_waiting_calls: int = 100
    max_sessions: int = 10_000
    quotas: Quotas = NO_QUOTAS


@dataclass(slots=True, kw_only=True)
class SessionCounters:
    """Plain counters, read when they are scraped.

    `changes`: (register or update, its outcome). `relayed`: requests by how they ended, with the time from the first
    sending to the answer. `resyncs`: by reason. `events`: published ones by name, once however many readers there are.
    """

    created: int = 0
    ended: Counter[str] = field(default_factory=Counter[str])
    changes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    events: Counter[str] = field(default_factory=Counter[str])
    resyncs: Counter[str] = field(default_factory=Counter[str])
    relayed: CallCounters = field(default_factory=lambda: CallCounters("_session", "relay"))


_KEPT_EXECUTORS = 1_000

RecentExecutors = LeastRecentlyUsed[str, LiveCatalog]
"""The executors of the sessions that were used last, by code, so that those of idle ones cost nothing."""


def recent_executors() -> RecentExecutors:
    """None so far."""
    return RecentExecutors(_KEPT_EXECUTORS)


class ReservedNames(Protocol):
    """What a session sees of the rest of the host."""

    def taken(self, tenant: str, name: str) -> str | None:
        """Whose name this is already in the catalogs of the tenant; None: it is free."""
        ...

    def default_tools(self, tenant: str) -> ToolExecutor | None:
        """The tools of a session whose plugin has registered nothing."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class SessionServices:
    """`forget` is told the code of a session that is over. Times to live follow the store's clock.

    `limits` and `planner` are the operator's and change with a reload.
    """

    store: Store
    limits: SessionLimits
    planner: Planner
    neighbours: ReservedNames
    forget: Callable[[str], None]
    background: Background = field(default_factory=Background)
    counters: SessionCounters = field(default_factory=SessionCounters)
    pool: DefinitionCache = field(default_factory=DefinitionCache)
    executors: RecentExecutors = field(default_factory=recent_executors)
