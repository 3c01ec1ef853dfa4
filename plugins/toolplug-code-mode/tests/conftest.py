"""A host with a shop whose tools scripts call, and callers of it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from toolplug import (
    CallContext,
    FunctionProvider,
    Host,
    ModelTools,
    Principal,
    ToolError,
    ToolResult,
    ToolStatus,
    open_host,
    tool,
)
from toolplug.part_protocols.approvals import Decision

BEA = Principal("bea", scopes=frozenset({"approvals:write"}))
ADA = Principal("ada", scopes=frozenset({"tools:call"}))


class Price(BaseModel):
    """What an item costs."""

    item: str
    cents: int


def interpreters() -> list[int]:
    """The processes of the pool of this process."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name.startswith("monty") and int(rest.split()[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


class Shop(FunctionProvider):
    """Sells things, and notes what was ordered."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.running = self.most = 0

    @tool(read_only=True)
    async def price(self, item: str, count: int = 1) -> Price:
        """Say what an item costs."""
        if item == "gold":
            raise ToolError("gold is sold out")
        return Price(item=item, cents=350 * count)

    @tool(read_only=True)
    async def wait(self, s: float) -> str:
        """Wait some seconds."""
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(s)
        finally:
            self.running -= 1
        return "waited"

    @tool(read_only=True)
    async def who(self, context: CallContext) -> list[str | None]:
        """Say who calls."""
        return [context.principal.subject, context.agent, context.session]

    @tool(read_only=True)
    async def text(self, length: int) -> str:
        """Return a long text."""
        return "x" * length

    @tool
    async def order(self, item: str) -> str:
        """Order an item."""
        self.orders.append(item)
        return f"ordered {item}"

    @tool
    async def remember(self, text: str) -> str:
        """Remember a text."""
        return text

    @tool(read_only=True)
    async def kill_interpreters(self) -> str:
        """Kill the processes in which scripts run."""
        for pid in interpreters():
            os.kill(pid, signal.SIGKILL)
        return "killed"

    @tool(read_only=True)
    async def again(self, code: str, context: CallContext) -> str:
        """Run a script from a tool."""
        tools = context.tools
        assert isinstance(tools, ModelTools)
        result = await tools.call("run_code", code=code)
        return f"{result.status}: {result.output}"


def ticket_of(result: ToolResult) -> str:
    """The ticket of a script that waits for a person."""
    assert result.status is ToolStatus.DENIED, result.output
    return str(result.metadata["approval"]["id"])  # pyright: ignore[reportIndexIssue, reportUnknownArgumentType]


class Opened:
    """The host, its shop, and calls of its caller."""

    def __init__(self, host: Host, shop: Shop) -> None:
        self.host = host
        self.shop = shop

    async def run(self, code: str, context: CallContext | None = None) -> ToolResult:
        """Run a script as Ada."""
        return await self.host.executor_for(ADA).call("run_code", {"code": code}, context)

    async def begun(self) -> None:
        """Return once a script waits in the shop."""
        async with asyncio.timeout(60):
            while not self.shop.running:  # noqa: ASYNC110  the tool runs in a task of its own
                await asyncio.sleep(0.01)

    async def go_on(self, code: str, ticket: str | None) -> ToolResult:
        """Repeat the call of a script, with a ticket."""
        return await self.run(code, CallContext(ADA, approval=ticket))

    async def decide(self, result: ToolResult, decision: Decision = "approve") -> str:
        """Decide the question of a script that waits, and return its ticket."""
        ticket = ticket_of(result)
        await self.host.approvals.decide(ticket, decision, BEA)
        return ticket

    async def value(self, code: str) -> Any:
        """Run a script that succeeds, and return its result."""
        result = await self.run(code)
        assert not result.is_error, result.output
        return result.structured["result"]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]


Serve = Callable[..., AbstractAsyncContextManager[Opened]]


@pytest.fixture
def serve() -> Serve:
    """Opens a host with these settings of the plugin, policies of the shop, and more of the file."""

    @asynccontextmanager
    async def opened(
        settings: Mapping[str, object] | None = None,
        tools: Mapping[str, object] | None = None,
        *,
        shop: Shop | None = None,
        **more: object,
    ) -> AsyncIterator[Opened]:
        shop = shop or Shop()
        providers = {
            "code": {"enabled": True, "type": "code_mode", **(settings or {})},
            **({"shop": {"tools": tools}} if tools else {}),
        }
        async with open_host(
            {"store": "memory://", "providers": providers, **more}, environ={}, providers={"shop": shop}
        ) as host:
            yield Opened(host, shop)

    return opened


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
