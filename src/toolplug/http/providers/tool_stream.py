"""`GET /v1/tools/stream`: a caller's catalog as an event stream, for hosts that link to this one.

    connected      the catalog: {host, delegate, revision, tools, via}; with `resumed` instead of tools and via, where
                   `Last-Event-ID` is the revision that the catalog has
    resync         before `connected`, where `Last-Event-ID` is another one: what the client has is not continued
    tools-changed  {revision, names, tools, via}: all names in order, and the definitions that are new or changed
    heartbeat      every 15 s
    error          the credential is no longer valid, and the stream ends

The id of `connected` and `tools-changed` is the revision. A tool is as in the Model Context Protocol, under its
canonical name; `via` has, for each tool of another host, the ids of the hosts that a call of it goes through.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

import orjson
from starlette.responses import Response

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.render import describe, tool_annotations
from toolplug.errors import AccessError, StoreError
from toolplug.execution.executor import ToolExecutor
from toolplug.http.errors import HttpProblem
from toolplug.http.event_stream import EventStreamResponse, ServedEventStream, open_stream
from toolplug.http.requests import HostRequest, executor_of, query_fields
from toolplug.http.routing import EVENTS, READ, Parameter, answers, route
from toolplug.http.tools import AGENT, DELEGATION, MAX_HOPS, SESSION, WAY, delegate, hosts_on_the_way, loop_in
from toolplug.net.sse import frame

HEARTBEAT_S = 15.0
RECHECK_BEATS = 4
"""Heartbeats between two checks of a stream's credential."""

_SINCE = Parameter("Last-Event-ID", "the id of the last event that was read", place="header")


@route(
    "GET",
    "/v1/tools/stream",
    READ,
    "The caller's tools, and their changes as they happen",
    parameters=(AGENT, SESSION, _SINCE, DELEGATION, WAY),
)
@answers(content_types=EVENTS, errors=(400, 404))
async def stream_tools(request: HostRequest) -> Response:
    """Stream the catalog until the client or its credential ends. Raises `HttpProblem` and `AccessError`."""
    state, query = request.state, query_fields(request)
    delegates = state["principal"].delegates
    state["principal"] = principal = delegate(state["principal"], state["headers"])
    via = hosts_on_the_way(state["headers"])
    agent, session = query.get("agent") or None, query.get("session") or None
    executor = await executor_of(state["host"], principal, agent, session)
    if request.method == "HEAD":
        return EventStreamResponse(_write_nothing)
    with ExitStack() as counted:
        counted.enter_context(open_stream(request))
        return EventStreamResponse(
            CatalogStream(request, executor, (agent, session), via, delegates, counted.pop_all()).write
        )


async def _write_nothing(stream: ServedEventStream) -> None:
    """Send nothing but the headers."""


class CatalogStream:
    """Sends one caller's catalog, then its changes; those that come faster than they are read are one event.

    `asked` are the agent and the session of the request; `delegates`: its key may name other callers.
    """

    def __init__(
        self,
        request: HostRequest,
        executor: ToolExecutor,
        asked: tuple[str | None, str | None],
        via: tuple[str, ...],
        delegates: bool,
        counted: ExitStack,
    ) -> None:
        self._request = request
        self._host = request.state["host"]
        self._executor = executor
        self._via = via
        self._principal = request.state["principal"]
        self._agent, self._session = asked
        self._delegates = delegates
        self._counted = counted
        self._changed = asyncio.Event()
        self._ended = False
        self._sent: dict[str, ToolDefinition] = {}
        self._sent_via: dict[str, tuple[str, ...]] = {}

    async def write(self, stream: ServedEventStream) -> None:
        """Send until the client hangs up or takes nothing, the host stops, or the credential is no longer valid."""
        with self._counted as cleanup:
            cleanup.callback(self._executor.subscribe(lambda _: self._changed.set()))
            cleanup.callback(self._host.stopping.listen(self._end))
            await self._connect(stream)
            beats = 0
            while not self._ended:
                try:
                    await asyncio.wait_for(self._changed.wait(), HEARTBEAT_S)
                except TimeoutError:
                    beats += 1
                    await self._send(stream, "heartbeat", {})
                    if beats % RECHECK_BEATS == 0:
                        await self._check_admitted(stream)
                else:
                    self._changed.clear()
                    await self._send_changes(stream)

    def _end(self) -> None:
        self._ended = True
        self._changed.set()

    async def _connect(self, stream: ServedEventStream) -> None:
        last = self._request.headers.get("last-event-id")
        revision = await self._look()
        resumed = last == str(revision)
        begin: dict[str, object] = {
            "host": self._host.toolsets.sources.host,
            "delegate": self._delegates,
            "revision": revision,
            "resumed": resumed,
        }
        if last is not None and not resumed:
            await self._send(stream, "resync", {"revision": revision})
        if not resumed:
            begin["tools"] = [_tool(item) for item in self._sent.values()]
            begin["via"] = self._sent_via
        await self._send(stream, "connected", begin, revision)

    async def _send_changes(self, stream: ServedEventStream) -> None:
        before, before_via = self._sent, self._sent_via
        revision = await self._look()
        changed = [item for name, item in self._sent.items() if _signature(before.get(name)) != _signature(item)]
        if changed or list(before) != list(self._sent) or before_via != self._sent_via:
            data = {
                "revision": revision,
                "names": list(self._sent),
                "tools": [_tool(item) for item in changed],
                "via": self._sent_via,
            }
            await self._send(stream, "tools-changed", data, revision)

    async def _look(self) -> int:
        """Take the present catalog, without the tools whose calls would come back here; return its revision."""
        hosts = self._host.toolsets.sources.hosts
        tools: dict[str, ToolDefinition] = {}
        vias: dict[str, tuple[str, ...]] = {}
        catalog = await self._host.catalog_for(self._principal, agent=self._agent, session=self._session)
        for definition, _ in catalog.values():
            way = hosts(definition)
            if set(way) & set(self._via) or len(way) >= MAX_HOPS:
                continue
            tools[definition.name] = definition
            if way:
                vias[definition.name] = way
        if loop_in(self._via, self._host.toolsets.sources.host) is not None:
            tools, vias = {}, {}
        self._sent, self._sent_via = tools, vias
        return _revision(tools.values(), vias)

    async def _check_admitted(self, stream: ServedEventStream) -> None:
        """End the stream if its caller would no longer be admitted, or is another one now."""
        request = self._request
        before = request.state["principal"]
        try:
            await request.state["readmit"](request)
            now = delegate(request.state["principal"], request.state["headers"])
        except HttpProblem as problem:
            await self._dismiss(stream, problem.message)
        except (AccessError, StoreError):
            return
        else:
            request.state["principal"] = now
            if now != before:
                await self._dismiss(stream, "the credential has other rights now; connect again")

    async def _dismiss(self, stream: ServedEventStream, message: str) -> None:
        await self._send(stream, "error", {"code": "auth_expired", "message": message})
        self._ended = True

    async def _send(
        self, stream: ServedEventStream, event: str, data: Mapping[str, object], event_id: int | None = None
    ) -> None:
        await stream.send(frame(event, orjson.dumps(data), event_id))


def _signature(definition: ToolDefinition | None) -> object:
    return None if definition is None else definition.signature


def _revision(tools: Iterable[ToolDefinition], vias: Mapping[str, tuple[str, ...]]) -> int:
    """Return a hash that is equal for equal lists, exact in JavaScript."""
    named = [[item.name, item.ref.digest, item.hints[:3], item.title, describe(item)] for item in tools]
    return int(hashlib.sha256(orjson.dumps([named, vias])).hexdigest()[:13], 16)


def _tool(definition: ToolDefinition) -> dict[str, object]:
    """Return the tool as in the Model Context Protocol, under its canonical name."""
    tool: dict[str, object] = {
        "name": definition.name,
        "description": describe(definition),
        "inputSchema": orjson.Fragment(definition.parameters.text),
        "annotations": tool_annotations(definition.hints),
    }
    if definition.output_schema is not None:
        tool["outputSchema"] = orjson.Fragment(definition.output_schema.text)
    if definition.title:
        tool["title"] = definition.title
    if definition.icons:
        tool["icons"] = definition.icons
    return tool
