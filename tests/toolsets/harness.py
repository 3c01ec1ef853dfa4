"""One agent, `a`, of the tenant `default`, the toolsets that it may use, and factories that count what they make."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from toolplug import CallContext, FunctionProvider, FunctionRegistry, ToolCall, ToolDefinition, ToolResult, tool
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.executor import LazyExecutor
from toolplug.execution.plans import CallServices
from toolplug.execution.task_runner import TaskRunner
from toolplug.toolsets.agent_tools import AgentTools, Choice
from toolplug.toolsets.registered import Allowlist
from toolplug.toolsets.toolset import Factory, PerSession, SharedSource, Toolset

AGENT = Choice("default", "a")
READ = (ToolDefinition(name="read"),)


class Files(FunctionProvider):
    """One tool that answers with the name that its instance was given."""

    def __init__(self, label: str = "files") -> None:
        self.label = label
        self.closed = 0

    @tool(read_only=True)
    async def read(self) -> str:
        return self.label

    async def aclose(self) -> None:
        self.closed += 1


class Shop:
    """A factory: each run makes a registry with one more `Files`."""

    def __init__(self) -> None:
        self.made: list[Files] = []

    def __call__(self) -> FunctionRegistry:
        self.made.append(Files(f"files {len(self.made) + 1}"))
        return FunctionRegistry({"files": self.made[-1]})

    @property
    def closed(self) -> list[int]:
        return [item.closed for item in self.made]


class Harness:
    """The agents of one host."""

    def __init__(self) -> None:
        self.accounting, self.runner = CallAccounting(), TaskRunner()
        self.tools = AgentTools(CallServices(accounting=self.accounting, runner=self.runner))
        self._life = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.runner.open()
        self._life.push_async_callback(self.runner.aclose)
        self._life.push_async_callback(self.tools.aclose)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._life.aclose()

    async def registry(self, **providers: FunctionProvider) -> FunctionRegistry:
        return await self._life.enter_async_context(FunctionRegistry(providers))

    def share(self, name: str, executor: FunctionRegistry, prefix: str = "") -> None:
        self._register(Toolset(id=name, prefix=prefix or name, source=SharedSource(executor=executor)))

    def make(self, name: str, factory: Factory, tools: tuple[ToolDefinition, ...] | None = None) -> None:
        self._register(Toolset(id=name, prefix=name, source=PerSession(factory=factory, tools=tools)))

    def allow(self, *toolsets: str) -> None:
        lists = self.tools.allowlists.configured_as({"a": Allowlist(toolsets, "here")})
        self.tools.change(allowlists=lists)

    def agent(self, session: Hashable = None) -> LazyExecutor:
        return LazyExecutor(self.tools, AGENT, session, lambda key: self.tools.executor(AGENT, key))

    def _register(self, toolset: Toolset) -> None:
        self.tools.change(toolsets=self.tools.toolsets.with_coded(toolset))


async def run(executor: LazyExecutor, name: str) -> ToolResult:
    return await executor.execute(ToolCall("c", name), CallContext())


async def settled() -> None:
    """Let tasks in the background end."""
    for _ in range(20):
        await asyncio.sleep(0)
