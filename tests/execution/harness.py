"""A harness for one tool at a time: everything that a call needs around it, and what must be at rest afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition, ToolHints
from toolplug.catalog.plan import Plan, Tool
from toolplug.crashes import CodeOwner
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.call_hooks import LiveCallHooks
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.run import run
from toolplug.execution.task_runner import TaskRunner, ThreadRunner
from toolplug.providers.plugins.registration import PluginManager, RunningPlugin
from toolplug.providers.plugins.shapes import hooks_of
from toolplug.providers.site import ProviderContext, ProviderRecords
from toolplug.stores.memory import MemoryStore

TURNS = 50
WORKER = "toolplug-call-worker"
NO_CONTEXT = CallContext()

LOOPS = {
    "asyncio": ("asyncio", {}),
    "debug": ("asyncio", {"debug": True}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
}

Target = Callable[[ToolCall, CallContext], Any]


class Harness:
    """A task runner, accounting and a switch, open inside `async with`; `threads` are made when first asked for."""

    def __init__(self, runner: TaskRunner | None = None) -> None:
        self.runner = TaskRunner() if runner is None else runner
        self.accounting = CallAccounting()
        self.switch = SourceSwitch()
        self.counters = self.accounting.counters("plays", "tool")
        self.abandoned = self.accounting.abandoned_limit("native", "plays")
        self._threads: ThreadRunner | None = None

    async def __aenter__(self) -> Harness:
        await self.runner.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._threads is not None:
            self._threads.close()
        await self.runner.aclose()

    @property
    def threads(self) -> ThreadRunner:
        if self._threads is None:
            self._threads = ThreadRunner("plays")
        return self._threads

    def plan(
        self, target: Target, *, name: str = "tool", parameters: Mapping[str, object] | None = None, **rules: Any
    ) -> Plan:
        definition = defined(name, parameters)
        plan = Plan(
            ref=definition.ref,
            target=target,
            schema=definition.parameters,
            switch=self.switch,
            counters=self.counters,
            abandoned=self.abandoned,
            runner=self.runner,
            timeout_s=30.0,
            max_result_bytes=1024 * 1024,
        )
        return replace(plan, **rules)

    def catalog(self, **targets: Target) -> Catalog:
        """A catalog of tools by name."""
        return Catalog([Tool(defined(name), self.plan(target, name=name)) for name, target in targets.items()])

    async def call(
        self, target: Target, arguments: Any = None, *, context: CallContext = NO_CONTEXT, **rules: Any
    ) -> ToolResult:
        plan = self.plan(target, **rules)
        return await run(plan, called(arguments), context, True)

    def hooks(self, *plugins: object) -> LiveCallHooks:
        """The hooks of these plugins, the first is asked first."""
        manager, live = PluginManager(), LiveCallHooks()
        manager.run([running_plugin(f"plugin{number}", plugin) for number, plugin in enumerate(plugins)])
        live.replace(manager.call_hooks(self.runner))
        return live

    def idle(self) -> tuple[int, int, int]:
        """Calls that run, by switch, gauge and limit of abandoned calls."""
        return (self.switch.running, self.counters.in_flight, self.abandoned.running)

    def counted(self) -> dict[str, int]:
        """Calls that ended, by status."""
        return {str(status): count for status, count in self.counters.ended.items()}


def running_plugin(key: str, plugin: object) -> RunningPlugin:
    site = ProviderContext(key=key, state_dir=Path(), store=lambda principal: ProviderRecords(MemoryStore(), key))
    return RunningPlugin(key, plugin, hooks_of(plugin), site, CodeOwner(key), "deny")


def defined(name: str = "tool", parameters: Mapping[str, object] | None = None) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        parameters=parameters if parameters is not None else {"type": "object"},
        hints=ToolHints(read_only=True),
    ).owned_by("native", "plays")


def called(arguments: Any = None, *, name: str = "tool") -> ToolCall:
    return ToolCall("c1", name, {} if arguments is None else arguments)


def workers_alive() -> int:
    """Tasks of the runners of this loop, parked or running a call."""
    return sum(task.get_name() == WORKER and not task.done() for task in asyncio.all_tasks())


async def turns(count: int = TURNS) -> None:
    """Let the loop take some turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(reached: Callable[[], bool]) -> None:
    """Wait turn by turn; the test's own time limit bounds it."""
    while not reached():
        await asyncio.sleep(0)


async def at_rest(harness: Harness) -> None:
    """Wait until nothing runs and at most one worker is parked."""
    await until(lambda: harness.idle() == (0, 0, 0))
    await until(lambda: workers_alive() <= 1)


async def cancelled(awaitable: Awaitable[object]) -> bool:
    """Did it end with its task's cancellation."""
    try:
        await awaitable
    except asyncio.CancelledError:
        return True
    return False
