"""Services, limits, counters and background tasks that the sessions of one host share."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from toolplug.errors import StoreError
from toolplug.execution.accounting import CallCounters
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.live import LiveCatalog
from toolplug.parts.sessions.limits import (
    MAX_ALL_TYPES,
    MAX_EXECUTORS,
    MAX_TYPE_TEXT,
    MAX_TYPE_TOOLS,
    MAX_TYPES,
    SessionLimits,
)
from toolplug.parts.sessions.peers.shared_records import CallRecords, PresenceRecords
from toolplug.parts.sessions.record import SessionState
from toolplug.parts.sessions.streams.events import LogEntry
from toolplug.parts.sessions.tools.session_tool import DefinitionCache, PluginStatus, SessionPlanner, StreamRole
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.tasks import wait_for_results
from toolplug.stores.store import Record, Store


class SeenTool(NamedTuple):
    """A tool as it was lent last; the description is cut."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenType:
    """A kind of application, as one of its sessions was registered last. Times are seconds on the store's clock."""

    plugin_type: str
    tools: tuple[SeenTool, ...]
    tool_count: int
    capabilities: tuple[str, ...]
    first_seen: float
    last_seen: float


class SessionTypes:
    """The kinds of each tenant that were seen last, at most `MAX_TYPES` of one and `MAX_ALL_TYPES` in all."""

    def __init__(self) -> None:
        # By tenant and kind, the one that was seen last at the end.
        self._seen: dict[tuple[str, str], SeenType] = {}

    def note(self, state: SessionState, now: float) -> None:
        """Remember what a session is lent; one that nothing was registered in has no kind yet."""
        if not state.registered:
            return
        key = (state.tenant, state.plugin_type)
        before = self._seen.pop(key, None)
        if before is None:
            self._make_room(state.tenant)
        some = islice(state.tools.tools.values(), MAX_TYPE_TOOLS)
        seen = SeenType(
            plugin_type=state.plugin_type,
            tools=tuple(SeenTool(tool.name, tool.definition.description[:MAX_TYPE_TEXT]) for tool in some),
            tool_count=len(state.tools),
            capabilities=tuple(dict.fromkeys(item.type for item in state.capabilities)),
            first_seen=now,
            last_seen=now,
        )
        self._seen[key] = seen if before is None else replace(seen, first_seen=before.first_seen)

    def of(self, tenant: str) -> tuple[SeenType, ...]:
        """Return the kinds of one tenant, the one that was seen last first."""
        return tuple(seen for (owner, _), seen in reversed(self._seen.items()) if owner == tenant)

    def _make_room(self, tenant: str) -> None:
        own = [key for key in self._seen if key[0] == tenant]
        # Those of the tenant itself first: what one tenant registers must not drop what another one has.
        if len(own) >= MAX_TYPES:
            del self._seen[own[0]]
        elif len(self._seen) >= MAX_ALL_TYPES:
            del self._seen[next(iter(self._seen))]


_LOG = logging.getLogger("toolplug.sessions")

T = TypeVar("T")


class SessionCallbacks(Protocol):
    """The methods of `Session`, described there, that its event streams, relay, presence and expiry call."""

    code: str

    @property
    def revision(self) -> int: ...
    @property
    def is_attached(self) -> bool: ...
    @property
    def attached_here(self) -> bool: ...
    @property
    def reachable(self) -> bool: ...
    @property
    def max_waiting(self) -> int: ...
    def now(self) -> float: ...
    def connected_data(self, record: Record) -> bytes: ...
    def resumed_data(self) -> bytes: ...
    async def refresh(self) -> object: ...
    def over(self) -> None: ...
    def has_room(self) -> None: ...
    def began_again(self, role: StreamRole, stream: str) -> None: ...
    def tell(self, stream: str, event: str, data: bytes, logged: bytes) -> bool: ...
    def log(self, entry: LogEntry) -> Coroutine[Any, Any, bool]: ...
    def publish(self) -> None: ...
    def status_changed(self, status: PluginStatus) -> None: ...
    async def keep_sign(self, ttl_s: float) -> None: ...
    async def expire(self) -> None: ...


class SessionTasks:
    """Tasks that end with the sessions; what one of them raises is logged and does not affect others."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._unbroken: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[None]:
        """Run the work as a task, which `aclose` cancels."""
        task = asyncio.create_task(_run_logged(work, name), name=f"toolplug-{name}")
        self._tasks.add(task)

        def forget(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            work.close()  # never started if the task was cancelled before its first step

        task.add_done_callback(forget)
        return task

    async def unbroken(self, work: Coroutine[None, None, T], name: str) -> T:
        """Run the work to its end and return its result, even if the caller or `aclose` is cancelled."""
        # Shielded: a caller that leaves in the middle of a commit would leave the state and the record apart.
        return await asyncio.shield(self._start(work, name))

    def finish(self, work: Coroutine[None, None, None], name: str) -> None:
        """Run the work to its end in the background, for which `aclose` waits; errors are logged."""
        self._start(_run_logged(work, name), name)

    def _start(self, work: Coroutine[None, None, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=f"toolplug-{name}")
        self._unbroken.add(task)
        task.add_done_callback(self._unbroken.discard)
        return task

    async def wait(self) -> None:
        """Wait for the tasks of `start` for a moment: the calls that they make have ended."""
        await wait_for_results(self._tasks)

    async def aclose(self) -> None:
        """Cancel the tasks of `start`, and wait for all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._unbroken, return_exceptions=True)


async def _run_logged(work: Coroutine[Any, Any, object], name: str) -> None:
    try:
        await work
    except StoreError as error:
        _LOG.error("%s: %s", name, error)
    except Exception:  # noqa: BLE001  a named boundary: no caller waits for the task
        _LOG.exception("%s failed", name)


@dataclass(slots=True, kw_only=True)
class SessionCounters:
    """Counters since the start, read by `SessionMetrics`.

    `changes`: by kind (register, update) and outcome. `relayed`: requests by outcome, with the seconds from the first
    sending to the answer. `resyncs`: by reason. `events`: by name, each event once, however many readers it has.
    """

    created: int = 0
    ended: Counter[str] = field(default_factory=Counter[str])
    changes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    events: Counter[str] = field(default_factory=Counter[str])
    resyncs: Counter[str] = field(default_factory=Counter[str])
    relayed: CallCounters = field(default_factory=lambda: CallCounters("_session", "relay"))


RecentExecutors = LeastRecentlyUsed[str, LiveCatalog]
"""The executors of the sessions that were used last, by code; those of idle sessions are not kept."""


class ReservedNames(Protocol):
    """The other tools of the host, as far as sessions need to know them."""

    def owner_of(self, tenant: str, name: str) -> str | None:
        """Return the owner of this name in the catalogs of the tenant; None if the name is free."""
        ...

    def default_tools(self, tenant: str) -> ToolExecutor | None:
        """Return the tools of a session without registered tools; None if there are none."""
        ...


class PeerRecords(NamedTuple):
    """The records of what processes do with each other's sessions."""

    calls: CallRecords
    presences: PresenceRecords
    store: Store


@dataclass(slots=True, kw_only=True, eq=False)
class SessionServices:
    """The services of all sessions. `forget` is called with the code of each session that is over.

    `limits` and `planner` follow the configuration and change with a reload. TTLs follow the store's clock. `peers` has
    the records of what processes do with each other's sessions; None for a store that is not shared.
    """

    store: Store
    limits: SessionLimits
    planner: SessionPlanner
    neighbours: ReservedNames
    forget: Callable[[str], None]
    peers: PeerRecords | None = None
    background: SessionTasks = field(default_factory=SessionTasks)
    counters: SessionCounters = field(default_factory=SessionCounters)
    pool: DefinitionCache = field(default_factory=DefinitionCache)
    types: SessionTypes = field(default_factory=SessionTypes)
    executors: RecentExecutors = field(default_factory=lambda: RecentExecutors(MAX_EXECUTORS))
