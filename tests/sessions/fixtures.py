"""Sessions over a store, with the rest of a host as a test arranges it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import orjson
import pytest

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.cluster.processes import Processes
from toolplug.errors import ApiError
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.plans import CallServices
from toolplug.execution.task_runner import TaskRunner
from toolplug.parts.sessions.limits import SessionLimits
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.streams.stream import Reader
from toolplug.parts.sessions.tools.negotiation import Registration, ToolChanges
from toolplug.parts.sessions.tools.session_tool import SessionPlanner
from toolplug.stores.store import Store

T1, T2 = Principal(subject="alice", tenant="t1"), Principal(subject="bob", tenant="t2")
BOTH_STORES = pytest.mark.parametrize("open_store", ["memory", "sqlite"], indirect=True)
"""For tests that the store has a part in."""
LIMITS = SessionLimits(max_updates_per_minute=1_000)
"""The contract's, but for the rate, which a test would meet before what it is about."""


class OpenStore(Protocol):
    """Makes a store, not yet open."""

    def __call__(self) -> Store: ...


@dataclass
class ArrangedNeighbours:
    """The names that others have, by name and by prefix, and the tools of sessions without a registration."""

    names: dict[str, str] = field(default_factory=dict[str, str])
    prefixes: set[str] = field(default_factory=set[str])
    default: ToolExecutor | None = None

    def owner_of(self, tenant: str, name: str) -> str | None:
        prefix, dot, _ = name.partition(".")
        if dot and prefix in self.prefixes:
            return f"the toolset of the prefix {prefix!r}"
        return self.names.get(name)

    def default_tools(self, tenant: str) -> ToolExecutor | None:
        return self.default


@asynccontextmanager
async def planning() -> AsyncIterator[SessionPlanner]:
    """A planner whose calls are carried while this is open."""
    runner = TaskRunner()
    await runner.open()
    try:
        yield SessionPlanner(CallServices(runner=runner))
    finally:
        await runner.aclose()


@asynccontextmanager
async def opened(
    store: Store,
    *,
    limits: SessionLimits = LIMITS,
    neighbours: ArrangedNeighbours | None = None,
    processes: Processes | None = None,
) -> AsyncIterator[Sessions]:
    """The sessions of one host over a store that is open."""
    async with (
        planning() as planner,
        Sessions(store, planner, neighbours or ArrangedNeighbours(), limits=limits, processes=processes) as sessions,
    ):
        yield sessions


def definition(name: str, description: str = "", **more: object) -> dict[str, object]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


def registration(*names: str, **more: object) -> Registration:
    """Of tools by these names."""
    return Registration(plugin_type="codap", tools=[definition(name) for name in names], **more)  # type: ignore[arg-type]


def added(*names: str) -> ToolChanges:
    return ToolChanges(added=[definition(name) for name in names])


def removed(*names: str) -> ToolChanges:
    return ToolChanges(removed=names)


def modified(name: str, description: str) -> ToolChanges:
    return ToolChanges(modified=[definition(name, description)])


def names(session: Session) -> list[str]:
    """What is registered, in order."""
    return list(session.state.tools.tools)


def listed(session: Session) -> dict[str, tuple[bool, str | None]]:
    """The tools as metadata shows them: name → available, and if not, why."""
    tools = orjson.loads(session.tools_wire())
    return {tool["name"]: (tool["available"], tool.get("reason")) for tool in tools}


async def call(
    session: Session,
    name: str,
    arguments: Mapping[str, object] | None = None,
    *,
    within_s: float | None = None,
    context: CallContext | None = None,
) -> ToolResult:
    """Call a tool of the session as a caller of its tenant does."""
    deadline = None if within_s is None else asyncio.get_running_loop().time() + within_s
    context = context or CallContext(Principal(tenant=session.tenant), deadline=deadline)
    return await session.executor.execute(ToolCall("c1", name, arguments or {}), context)


class Told(NamedTuple):
    """One event as it stands on a stream."""

    id: int
    event: str
    data: dict[str, object]


def told(chunk: bytes) -> list[Told]:
    """The events of a part of a stream."""
    events: list[Told] = []
    for frame in chunk.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        assert list(fields) == ["id", "event", "data"], frame
        events.append(Told(int(fields["id"]), fields["event"], orjson.loads(fields["data"])))
    return events


class Listener:
    """Somebody who reads one stream to the end, and keeps what it was told."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.heard: list[Told] = []
        self.over = False

    @property
    def last_id(self) -> str:
        return str(self.heard[-1].id)

    def of(self, event: str) -> list[dict[str, object]]:
        """The data of the events of this name."""
        return [heard.data for heard in self.heard if heard.event == event]

    async def hear(self) -> None:
        """Read once what waits, as soon as something does."""
        chunk = await self.reader.next()
        self.heard += told(chunk)
        self.over = not chunk

    async def hear_until(self, event: str, count: int = 1) -> dict[str, object]:
        """Read until so many events of this name were heard; the data of the last of them."""
        while len(self.of(event)) < count:
            assert not self.over, f"the stream ended before {event!r}: {self.heard}"
            await self.hear()
        return self.of(event)[count - 1]

    async def hear_out(self) -> None:
        """Read to the end of the stream."""
        while not self.over:
            await self.hear()


@asynccontextmanager
async def listening(session: Session, role: str = "client", after: str | None = None) -> AsyncIterator[Listener]:
    """An open stream that has said how it begins."""
    reader = await session.open_stream(role, after)  # type: ignore[arg-type]
    try:
        listener = Listener(reader)
        await listener.hear_until("connected")
        yield listener
    finally:
        session.close_stream(reader)


async def turns(count: int = 50) -> None:
    """Let the loop take some turns."""
    for _ in range(count):
        await asyncio.sleep(0)


class Plugin(Listener):
    """An application that reads its stream and answers what it is asked."""

    def __init__(self, session: Session, reader: Reader) -> None:
        super().__init__(reader)
        self._session = session
        self._seen = 0

    def asked(self) -> list[dict[str, object]]:
        """The requests so far."""
        return self.of("tool-request")

    async def next_request(self) -> dict[str, object]:
        """The next request that is still to come; first those that came together with the stream's beginning."""
        return await self.hear_until("tool-request", self._seen + 1)

    async def hear_until(self, event: str, count: int = 1) -> dict[str, object]:
        data = await super().hear_until(event, count)
        if event == "tool-request":
            self._seen = max(self._seen, count)
        return data

    async def answer_all(self, answer: Callable[[dict[str, object]], object]) -> None:
        """Answer each request as it comes, until the stream ends; for some it is too late."""
        answered = 0
        while not self.over:
            for request in self.asked()[answered:]:
                answered += 1
                with suppress(ApiError):
                    self._session.relay.answer(str(request["id"]), answer(request))
            await self.hear()


@asynccontextmanager
async def attached(session: Session) -> AsyncIterator[Plugin]:
    """The session's plugin, connected, which answers nothing by itself."""
    reader = await session.open_stream("plugin", None)
    try:
        plugin = Plugin(session, reader)
        await plugin.hear_until("connected")
        yield plugin
    finally:
        session.close_stream(reader)


@asynccontextmanager
async def serving(session: Session, answer: Callable[[dict[str, object]], object]) -> AsyncIterator[Plugin]:
    """The session's plugin, which answers whatever it is asked."""
    async with attached(session) as plugin:
        answering = asyncio.create_task(plugin.answer_all(answer))
        try:
            yield plugin
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)


async def calling(session: Session, name: str, **arguments: object) -> asyncio.Task[ToolResult]:
    """A call that has come as far as it does by itself."""
    task = asyncio.create_task(call(session, name, arguments))
    await turns()
    return task
