"""An executor over toolsets that list no tools before their factory has run; the first call or listing runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager
from types import CoroutineType
from typing import Any

from toolplug.catalog.call import ANONYMOUS_CONTEXT, CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.execution.executor import Listener, ModelTools, ToolExecutor, Unsubscribe
from toolplug.execution.results import timed_out
from toolplug.toolsets.agent_tools import AgentTools, Choice

Compose = Callable[[Hashable], ToolExecutor]
"""The caller's whole executor for a session's key, None: for no session."""


class LazyExecutor(ModelTools):
    """The caller's executor, which opens the toolsets that may have a name before it answers that the name is unknown.

    Without a session, they are opened for one call or listing, and closed after it.
    """

    def __init__(
        self,
        tools: AgentTools,
        choice: Choice,
        session: Hashable,
        compose: Compose,
        default_context: CallContext = ANONYMOUS_CONTEXT,
    ) -> None:
        self._tools = tools
        self._choice = choice
        self._session = session
        self._compose = compose
        self._default_context = default_context
        self._inner = compose(session)

    @property
    def catalog(self) -> Catalog:
        """The tools that are listed now; opens nothing."""
        return self._inner.catalog

    @property
    def listing(self) -> ToolExecutor:
        """The executor of `catalog`."""
        return self._inner

    def can_execute(self, name: str) -> bool:
        """True for exactly the names in the catalog, canonical or wire."""
        return self._inner.can_execute(name)

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call the listener with each difference of the catalog."""
        return self._inner.subscribe(listener)

    def execute(self, call: ToolCall, context: CallContext | None = None) -> CoroutineType[Any, Any, ToolResult]:
        """Run one call; for a name that is not listed, first open the toolsets that may have it."""
        if context is None:
            context = self._default_context
        if self._tools.some_wait:
            tool = self._inner.catalog.find(call.name)
            if tool is None:
                return self._execute_opened(call, context)
            if tool.plan.forward is not None:
                return tool.plan.forward(self, call, context)
        return self._inner.execute(call, context)

    async def listed(self) -> Catalog:
        """Return the catalog after opening all toolsets."""
        async with self._opened("", None) as executor:
            return executor.catalog

    async def _execute_opened(self, call: ToolCall, context: CallContext) -> ToolResult:
        began = asyncio.get_running_loop().time()
        try:
            async with self._opened(call.name, context.deadline) as executor:
                return await executor.execute(call, context)
        except TimeoutError:
            return timed_out(call, asyncio.get_running_loop().time() - began)

    @asynccontextmanager
    async def _opened(self, name: str, deadline: float | None) -> AsyncGenerator[ToolExecutor]:
        """Return the executor with the toolsets that may have the name open. Raises `TimeoutError` at the deadline."""
        if not self._tools.waits(self._choice, self._session, name):
            yield self._inner
            return
        if self._session is not None:
            async with asyncio.timeout_at(deadline):
                await self._tools.open(self._choice, self._session, name)
            yield self._inner
            return
        session = object()
        executor = self._compose(session)
        try:
            async with asyncio.timeout_at(deadline):
                await self._tools.open(self._choice, session, name)
            yield executor
        finally:
            await self._tools.close(session)
