"""Toolsets that a factory opens: what the file declares of them, and the lifetime of the executor that is made."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import cast

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Target, Tool
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.plans import CallServices, PlanBuilder, PlanSource
from toolplug.execution.resolved_limits import LimitLevel
from toolplug.execution.results import unavailable
from toolplug.runtime.tasks import OpeningFailed, OwnedTask
from toolplug.toolsets.toolset import Factory, Toolset

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
