"""What the sessions of one host share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from toolplug.execution.executor import ToolExecutor
from toolplug.execution.live import LiveCatalog
from toolplug.sessions.background import Background
from toolplug.sessions.counters import SessionCounters
from toolplug.sessions.limits import SessionLimits
from toolplug.sessions.plans import Planner
from toolplug.sessions.session_tool import ToolPool
from toolplug.stores.store import Store

_KEPT_EXECUTORS = 1_000


class Neighbours(Protocol):
    """What a session sees of the rest of the host."""

    def taken(self, tenant: str, name: str) -> str | None:
        """Whose name this is already in the catalogs of the tenant; None: it is free."""
        ...

    def default_tools(self, tenant: str) -> ToolExecutor | None:
        """The tools of a session whose plugin has registered nothing."""
        ...


class RecentExecutors:
    """Keeps the executors of the sessions that were used last, so that those of idle ones cost nothing."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, LiveCatalog] = OrderedDict()

    def used(self, code: str, executor: LiveCatalog) -> None:
        """This one was used now."""
        self._kept[code] = executor
        self._kept.move_to_end(code)
        if len(self._kept) > _KEPT_EXECUTORS:
            self._kept.popitem(last=False)

    def forget(self, code: str) -> None:
        """The session is over."""
        self._kept.pop(code, None)


@dataclass(slots=True, kw_only=True, eq=False)
class Shared:
    """`forget` is told the code of a session that is over. Times to live follow the store's clock.

    `limits` and `planner` are the operator's and change with a reload.
    """

    store: Store
    limits: SessionLimits
    planner: Planner
    neighbours: Neighbours
    forget: Callable[[str], None]
    background: Background = field(default_factory=Background)
    counters: SessionCounters = field(default_factory=SessionCounters)
    pool: ToolPool = field(default_factory=ToolPool)
    executors: RecentExecutors = field(default_factory=RecentExecutors)
