"""A toolset: an id, a prefix and the source of its tools, which a factory may open for as long as it is used."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol, cast

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.definition import Offer, Offered, ToolDefinition
from toolplug.catalog.offering import EMPTY_OFFERING, Offering
from toolplug.catalog.plan import Target, Tool
from toolplug.errors import InvalidDefinition
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.plans import CallServices, PlanBuilder, PlanSource
from toolplug.execution.resolved_limits import LimitLevel
from toolplug.execution.results import unavailable
from toolplug.runtime.tasks import OpeningFailed, OwnedTask

TOOLSET_ID = r"^[a-z][a-z0-9_-]{0,63}$"

FROM_CODE = "code"

Made = ToolExecutor | AbstractAsyncContextManager[ToolExecutor]
Factory = Callable[[], Made | Awaitable[Made]]
"""Makes the executor of one session. What it gives may be waited for, and is closed by leaving it where it can be
entered (`async with`), else by its `aclose()` where it has one."""

_ID = re.compile(TOOLSET_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSource:
    """One executor for all callers, which no session closes; `offering` returns its prompts and resources."""

    executor: ToolExecutor
    offering: Callable[[], Offering] = field(default=lambda: EMPTY_OFFERING, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerSession:
    """A factory that runs once for each session. `tools` are listed before; with None it must run first."""

    factory: Factory
    tools: tuple[ToolDefinition, ...] | None = None


class SessionExecutor(ToolExecutor, Protocol):
    """A tool executor of one session."""

    async def aclose(self) -> None:
        """Release what its calls have started."""
        ...

    @property
    def offering(self) -> Offering:
        """The prompts and resources of the session's own source."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDemand:
    """Executors that list their tools at once, and start what they need at the first call.

    `make` returns one for each session when it is first needed, which is closed once, with the session. `lone` is that
    of callers without a session, which is never closed, and `offering` returns their prompts and resources.
    """

    lone: ToolExecutor
    make: Callable[[], SessionExecutor]
    offering: Callable[[], Offering] = field(default=lambda: EMPTY_OFFERING, compare=False)


Source = SharedSource | PerSession | OnDemand


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Toolset:
    """One registration. Raises `InvalidDefinition` for an invalid id or prefix (docs/reference/names.md).

    `limits` apply to its tools together, in addition to those of their source. `offered` is how models are offered the
    tools whose own rules say nothing of it; None: as their source says. `used` is called when a session begins to use
    the toolset. `shown` names the source of its tools, and `origin` the line of the configuration, or the call,
    that registered it.
    """

    id: str
    prefix: str
    source: Source
    limits: LimitLevel | None = None
    offered: Offered | None = None
    used: Callable[[], None] = lambda: None
    shown: str = FROM_CODE
    origin: str = FROM_CODE

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise InvalidDefinition(
                f"{self.id!r} is no toolset id; a lower-case letter, then up to 63 of a-z 0-9 _ - are allowed", at="id"
            )
        try:
            EMPTY_CATALOG.prefixed(self.prefix)
        except InvalidDefinition as error:
            raise InvalidDefinition(str(error), at="prefix") from None

    def rename_tools(self, catalog: Catalog) -> Catalog:
        """Return the tools of the source under the prefix, and offered as `offered` says."""
        return (catalog if self.offered is None else catalog.offered(self.offered)).prefixed(self.prefix)


def coded_toolset(
    name: str,
    prefix: str,
    source: ToolExecutor | Factory,
    tools: Iterable[ToolDefinition] | None,
    offer: Offer | None,
) -> Toolset:
    """Return a toolset of the host's code. Raises `InvalidDefinition`, and `TypeError` for an invalid source."""
    offered = None if offer is None else Offered(offer, FROM_CODE)
    # A class has the methods of the protocol as well, but is a factory.
    if not isinstance(source, type) and isinstance(source, ToolExecutor):
        if tools is not None:
            raise TypeError("tools are for a factory; an executor lists its own")
        return Toolset(id=name, prefix=prefix, source=SharedSource(executor=source), offered=offered)
    if not callable(source):
        raise TypeError(f"a {type(source).__name__} is neither a ToolExecutor nor a factory of one")
    declared = None if tools is None else tuple(tools)
    return Toolset(id=name, prefix=prefix, source=PerSession(factory=source, tools=declared), offered=offered)


OPEN_S = 30.0
CLOSE_S = 5.0

_LOG = logging.getLogger("toolplug.toolsets")


class NotOpened(Exception):
    """The factory raised, returned no executor, took too long, or was closed. Its own message is not repeated."""


class Opened:
    """Runs a factory once, in a task that also closes what it made, exactly once.

    As one task enters and leaves it, a factory may use task groups and timeouts around its executor.
    """

    def __init__(self, name: str, factory: Factory, *, open_s: float = OPEN_S, close_s: float = CLOSE_S) -> None:
        self._name = name
        self._factory = factory
        self._open_s = open_s
        self._close_s = close_s
        self._closed = False
        self._owned: OwnedTask[ToolExecutor] | None = None

    async def executor(self) -> ToolExecutor:
        """Return the executor: the first call starts the factory, later ones wait for it. Raises `NotOpened`."""
        if self._owned is None and not self._closed:
            self._owned = OwnedTask(self._keep_open, name=f"toolplug-toolset-{self._name}", on_end=self._log)
        owned = self._owned
        if owned is not None and not owned.ended.is_set():
            try:
                async with asyncio.timeout(self._open_s):
                    return await owned.wait_open()
            except TimeoutError:
                _LOG.error("the factory of toolset %r has not ended after %g s", self._name, self._open_s)
                await owned.end(0)
            except OpeningFailed:
                pass
        raise NotOpened(f"the factory of toolset {self._name!r} made no executor")

    async def aclose(self) -> None:
        """Close what was made within a few seconds; a factory that still runs is cancelled."""
        self._closed = True
        if self._owned is not None and not await self._owned.end(self._close_s):
            _LOG.error("toolset %r has not closed after %g s", self._name, self._close_s)

    def _log(self, owned: OwnedTask[ToolExecutor], error: BaseException | None) -> None:
        if error is not None:
            _LOG.error("toolset %r: its factory or its end raised %s", self._name, type(error).__name__)

    async def _keep_open(self, owned: OwnedTask[ToolExecutor]) -> None:
        async with AsyncExitStack() as life:
            owned.hand_out(await _make(self._factory, life))
            await owned.ended.wait()


async def _make(factory: Factory, life: AsyncExitStack) -> ToolExecutor:
    """Return the factory's executor, entered if it is a context manager; `life` exits or closes it."""
    made: object = factory()
    if inspect.isawaitable(made):
        made = await cast("Awaitable[object]", made)
    if isinstance(made, AbstractAsyncContextManager):
        made = await life.enter_async_context(cast("AbstractAsyncContextManager[object]", made))
    else:
        close = getattr(made, "aclose", None)
        if callable(close):
            life.push_async_callback(cast("Callable[[], Awaitable[object]]", close))
    if not isinstance(made, ToolExecutor):
        raise TypeError(f"a {type(made).__name__} is no ToolExecutor")
    return made


KIND = "toolset"

Use = Callable[[], AbstractAsyncContextManager[ToolExecutor]]
"""The executor for one call; entering raises `NotOpened`."""


def declare_tools(
    toolset: Toolset, tools: tuple[ToolDefinition, ...], services: CallServices, switch: SourceSwitch, use: Use
) -> Catalog:
    """Return these tools under the toolset's prefix; calls run in the executor that `use` returns, by their own names.

    The host's rules apply to the call, and the executor's own in addition.
    """
    builder = PlanBuilder(services, LimitLevel((KIND, toolset.id)))
    abandoned = services.accounting.abandoned_limit(KIND, toolset.id)
    target = _target(toolset, use)

    def tool(item: ToolDefinition) -> Tool:
        definition = item.owned_by(KIND, toolset.id)
        counters = services.accounting.counters(f"{KIND}:{toolset.id}", definition.ref.name)
        source = PlanSource(target, switch, counters, abandoned)
        return Tool(definition, builder.build(definition, source, author_timeout_s=definition.timeout_s))

    return toolset.rename_tools(Catalog(tool(item) for item in tools))


def _target(toolset: Toolset, use: Use) -> Target:
    async def target(call: ToolCall, context: CallContext) -> ToolResult:
        try:
            async with use() as executor:
                return await executor.execute(call, context)
        except NotOpened:
            # The target is called by the tool's own name, without the prefix that the caller knows.
            named = call._replace(name=f"{toolset.prefix}.{call.name}")
            return unavailable(named, f"toolset {toolset.id!r} could not be opened", code="toolset_not_opened")

    return target
