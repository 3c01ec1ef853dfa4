"""A server that a test plays itself, in place of a connection, and the surroundings of its tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from toolplug import CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.call import NO_TRACE_CONTEXT, Ask, Report, ask_nobody
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.plans import CallServices
from toolplug.execution.resolved_limits import NO_LIMITS, LimitLevel, Limits
from toolplug.execution.task_runner import TaskRunner
from toolplug.parts.approvals.running import Approvals
from toolplug.parts.mcp.client.connection import (
    NO_HEADERS,
    Connect,
    ConnectionFailed,
    McpAnswer,
    OnChange,
    Repetition,
    ServerRefused,
)
from toolplug.parts.mcp.client.server_config import Command, Server, Transport
from toolplug.parts.mcp.client.server_tools import ServerTools
from toolplug.parts.mcp.discovery.listing import ListReader
from toolplug.parts.mcp.discovery.offers import RawOffers
from toolplug.parts.mcp.discovery.record import NOTHING, DiscoveryRecord, ServerName
from toolplug.stores.memory import MemoryStore

ME = Principal(subject="me", scopes=frozenset({"tools:call"}))
TIME = Server(name=ServerName("time"), transport=Command(command="time"))


def tool(name: str = "now", description: str = "Tell the time.", **more: object) -> dict[str, object]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


def said(text: str, *, is_error: bool = False) -> McpAnswer:
    return McpAnswer([{"type": "text", "text": text}], None, is_error)


async def _nothing(method: str, params: Mapping[str, object]) -> Mapping[str, object]:
    return {}


class ScriptedConnection:
    """One connection; answers with `script.answer`."""

    version = "2025-11-25"

    def __init__(self, script: ScriptedServer, on_change: OnChange, number: int) -> None:
        self._script = script
        self.change = on_change
        self.number = number
        self.calls: list[tuple[str, Mapping[str, object]]] = []
        self.cancelled = 0
        self._over = asyncio.Event()

    @property
    def open(self) -> bool:
        return not self._over.is_set()

    def die(self) -> None:
        self._over.set()

    async def tools(self, headers: Mapping[str, str] = NO_HEADERS) -> Sequence[object]:
        self._script.listings += 1
        if not self.open:
            raise ConnectionFailed("gone")
        return list(self._script.listed(self))

    async def announces_changes(self) -> bool | None:
        return True

    async def offers(self) -> RawOffers:
        return self._script.offers

    async def follow(self, uri: str, told: Callable[[], None]) -> Callable[[], None]:
        raise ServerRefused(-32601, "its server does not notify of updates")

    async def request(
        self, method: str, params: Mapping[str, object], headers: Mapping[str, str] = NO_HEADERS
    ) -> Mapping[str, object]:
        return await self._script.requested(method, params)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        report: Report | None,
        trace_context: Mapping[str, str] = NO_TRACE_CONTEXT,
        ask: Ask = ask_nobody,
        repetition: Repetition | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> McpAnswer:
        self.calls.append((name, arguments))
        answer = asyncio.ensure_future(self._script.answer(self, name, arguments, report))
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait([answer, over], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionFailed("gone")
            return answer.result()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            answer.cancel()
            over.cancel()
            await asyncio.gather(answer, over, return_exceptions=True)

    async def wait_closed(self) -> None:
        await self._over.wait()


class ScriptedServer:
    """Opens connections, and counts them. `fails` makes opening raise, `holds` makes it wait."""

    def __init__(self) -> None:
        self.connections: list[ScriptedConnection] = []
        self.offers = RawOffers()
        self.requested: Callable[[str, Mapping[str, object]], Awaitable[Mapping[str, object]]] = _nothing
        self.transports: list[Transport] = []
        self.tried = 0
        self.left = 0
        self.listings = 0
        self.fails: BaseException | None = None
        self.holds: asyncio.Event | None = None
        self.listed: Callable[[ScriptedConnection], Sequence[object]] = lambda connection: [tool()]
        self.answering: asyncio.Event | None = None

    @asynccontextmanager
    async def connect(self, transport: Transport, on_change: OnChange) -> AsyncGenerator[ScriptedConnection]:
        self.tried += 1
        if self.holds is not None:
            await self.holds.wait()
        if self.fails is not None:
            raise self.fails
        connection = ScriptedConnection(self, on_change, len(self.connections) + 1)
        self.connections.append(connection)
        self.transports.append(transport)
        try:
            yield connection
        finally:
            connection.die()
            self.left += 1

    async def answer(
        self, connection: ScriptedConnection, name: str, arguments: Mapping[str, object], report: Report | None
    ) -> McpAnswer:
        """By default: the number of the connection, once `answering` is set where there is such an event."""
        if self.answering is not None:
            await self.answering.wait()
        return said(f"{name} of {connection.number}")

    @property
    def running(self) -> int:
        """Connections that have not been left."""
        return len(self.connections) - self.left


@dataclass
class Harness:
    """The surroundings of a host without the host; `limits` are those for every tool."""

    limits: Limits = NO_LIMITS

    async def __aenter__(self) -> Self:
        self.script = ScriptedServer()
        self.connect: Connect = self.script.connect
        self.store, self.accounting, self.runner = MemoryStore(), CallAccounting(), TaskRunner()
        self.life = AsyncExitStack()
        await self.life.enter_async_context(self.store)
        await self.runner.open()
        self.life.push_async_callback(self.runner.aclose)
        self.approvals = Approvals(self.store)
        self.services = CallServices(
            accounting=self.accounting,
            runner=self.runner,
            limits=lambda: LimitLevel((), self.limits),
            approvals=self.approvals,
        )
        self.changes = 0
        self.when_changed: Callable[[], None] = lambda: None
        self.first: list[Sequence[object]] = []
        self.pauses: list[float] = []
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.life.aclose()

    async def tools(self, server: Server = TIME, *listed: object) -> ServerTools:
        """The server's tools, shown a record of these definitions; closed with the desk."""
        tools = ServerTools(
            server,
            self.services,
            self.connect,
            on_change=self._changed,
            first=self.first.append,
            pause=self._pause,
        )
        self.life.push_async_callback(tools.aclose)
        tools.show(await record(*(listed or (tool(),))))
        return tools

    def _changed(self) -> None:
        self.changes += 1
        self.when_changed()

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


async def record(*raw: object, quarantined: tuple[str, ...] = ()) -> DiscoveryRecord:
    """A record of these definitions, made safe as discovery does."""
    found = (await ListReader("time").read(raw, NOTHING)).tools
    tools = tuple(replace(item, quarantined=item.name in quarantined) for item in found)
    return DiscoveryRecord(status="success", tools=tools)


async def run(
    executor: ToolExecutor, name: str = "now", arguments: Mapping[str, object] | None = None, **context: object
) -> ToolResult:
    made = CallContext(principal=ME)._replace(**context)  # type: ignore[arg-type]
    return await executor.execute(ToolCall("c", name, arguments or {}), made)


async def settled() -> None:
    """Let tasks in the background go as far as they can."""
    for _ in range(30):
        await asyncio.sleep(0)
