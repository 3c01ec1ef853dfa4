"""Hooks around a call: what a call costs with plugins that take part in it, and a session's tool without any."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmarks.calling import repeated, trivial
from benchmarks.frame import Batch, Row
from benchmarks.providers import ECHO_SCHEMA, Trivial
from benchmarks.tools import TEXT
from toolplug import CallContext, Catalog, FunctionRegistry, ToolCall, ToolDefinition, ToolResult, hookimpl
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.live import LiveCatalog
from toolplug.execution.plans import CallServices, PlanSource
from toolplug.parts.sessions.tools.session_tool import SessionPlanner

ECHO = ToolCall(id="c1", name="echo", arguments={"text": TEXT})


class Allowing:
    """A synchronous check."""

    @hookimpl
    def before_call(self, call: ToolCall) -> None:
        """Allow every call."""


class Awaiting:
    """An asynchronous check that never waits."""

    @hookimpl
    async def before_call(self, call: ToolCall) -> None:
        """Allow every call."""


class Wrapping:
    """A wrapper around checks."""

    @hookimpl(wrapper=True)
    def before_call(self, call: ToolCall) -> Generator[None, Any, Any]:
        """Return what the others say."""
        return (yield)


class Keeping:
    """A look at each result."""

    @hookimpl
    def change_result(self, result: ToolResult) -> None:
        """Keep every result."""


class Noting:
    """A note of each answer."""

    @hookimpl
    def after_call(self, result: ToolResult) -> None:
        """Note nothing."""


@asynccontextmanager
async def with_plugin(kind: type) -> AsyncGenerator[Batch]:
    """Call the trivial tool with one plugin of this kind."""
    async with FunctionRegistry({"trivial": Trivial(), "plugin": kind()}) as registry:
        yield await repeated(registry, ECHO)


async def _echo(call: ToolCall, context: CallContext) -> object:
    return call.arguments["text"]  # type: ignore[index]


@asynccontextmanager
async def of_a_session() -> AsyncGenerator[Batch]:
    """Call a trivial tool with the plan of a session's, which is made apart from the registry."""
    services = CallServices()
    await services.runner.open()
    definition = ToolDefinition(name="echo", parameters=ECHO_SCHEMA).owned_by("session", "bench")
    counters, abandoned = (
        services.accounting.counters("_session", "_session"),
        services.accounting.abandoned_limit("s", "s"),
    )
    tool = SessionPlanner(services).tool(definition, PlanSource(_echo, SourceSwitch(), counters, abandoned))
    try:
        yield await repeated(LiveCatalog(services.unknown, Catalog([tool])), ECHO)
    finally:
        await services.runner.aclose()


ROWS = (
    Row(
        name="a session's tool without hooks",
        ours=of_a_session,
        other=trivial,
        against="a provider's",
        hold=1.1,
        aim=1.0,
    ),
    *(
        Row(name=name, ours=partial(with_plugin, kind), other=trivial, against="no plugin", hold=hold, aim=aim)
        for name, kind, hold, aim in (
            ("one synchronous before_call", Allowing, 1.5, 1.2),
            ("one asynchronous before_call", Awaiting, None, None),
            ("one wrapper of before_call", Wrapping, None, None),
            ("one synchronous change_result", Keeping, None, None),
            ("one synchronous after_call", Noting, None, None),
        )
    ),
)
