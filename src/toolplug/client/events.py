"""The events of one session as values, over as many connections as it takes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import ClassVar, Generic, Literal, TypeVar

from httpx2 import AsyncClient, EventSource, RequestError, Response, ServerSentEvent
from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter
from pydantic.alias_generators import to_camel

from toolplug.client.backoff import Backoff
from toolplug.client.host_requests import HostRequests
from toolplug.errors import SessionOver

_LOG = logging.getLogger("toolplug.client")

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Twice what all definitions of one session may have together."""

Event = TypeVar("Event")
Readers = Mapping[str, Callable[[bytes], Event]]


class _Error(BaseModel):
    """The host's last word."""

    code: str
    message: str


class _Unreadable(Exception):
    """An event that is not what its name says."""


class EventStream(Generic[Event]):
    """Reads what a host tells about one session, and connects again where a connection breaks or falls silent.

    `readers` make a value of an event's data, by the event's name; one that raises `ValueError` says that the data
    cannot be read. Other events are passed over.
    """

    def __init__(self, host: HostRequests, path: str, readers: Readers[Event], backoff: Backoff) -> None:
        self._host = host
        self._path = path
        self._readers = readers
        self._backoff = backoff
        self._last_id = ""

    async def events(self, first: Response | None = None) -> AsyncGenerator[Event]:
        """Every event once, in order, or a new snapshot where that cannot be. Whoever leaves it closes it.

        `first`: a connection that is `opened` already. Raises `SessionOver`, or `HostRefused` where asking again is no
        use; never ends otherwise. A connection that breaks as soon as it is open is opened again later and later.
        """
        clock = asyncio.get_running_loop().time
        pause_s = 0.0
        while True:
            response = first or await self._backoff.retry(self.opened)
            first, opened_at = None, clock()
            async with aclosing(response):
                try:
                    async for sent in EventSource(response, MAX_EVENT_BYTES):
                        event = self._read(sent)
                        if event is not None:
                            yield event
                        self._last_id = sent.id or self._last_id
                    _LOG.info("the host closed the event stream; connecting again")
                except RequestError as error:
                    _LOG.info("the event stream broke (%s); connecting again", str(error) or type(error).__name__)
                except _Unreadable as error:
                    self._last_id = ""
                    _LOG.warning("%s; asking for a snapshot", error)
            brief = clock() - opened_at < pause_s
            pause_s = min(pause_s * 2, self._backoff.longest_s) if brief else self._backoff.first_s
            await asyncio.sleep(random.uniform(0, pause_s))

    async def opened(self) -> Response:
        """One connection, which goes on after the last event that was taken."""
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        return await self._host.opened(self._path, headers, self._backoff.silence_s)

    def _read(self, sent: ServerSentEvent) -> Event | None:
        reader = _Error.model_validate_json if sent.event == "error" else self._readers.get(sent.event)
        if reader is None:
            return None
        try:
            event = reader(sent.data.encode())
        except ValueError:
            raise _Unreadable(f"an event {sent.event!r} cannot be read") from None  # its text may hold arguments
        if isinstance(event, _Error):
            raise SessionOver(event.code, event.message)
        return event


PluginStatus = Literal["attached", "waiting", "detached"]
"""The application is connected; is not, but may come back; is gone, and calls of its tools are unavailable."""


_PLUGIN_GONE = "plugin_gone"


class _Event(BaseModel):
    """Keys that this version does not know are passed over, so that an older client can read a newer host."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class OfferedTool(_Event):
    """A tool of a session. One that is not `available` is listed but cannot be called; `reason` says why."""

    name: str
    description: str = ""
    input_schema: Mapping[str, JsonValue]
    output_schema: Mapping[str, JsonValue] | None = None
    annotations: Mapping[str, JsonValue] | None = None
    requires: tuple[JsonValue, ...] | None = None
    available: bool = True
    reason: str | None = None

    def while_plugin_is(self, status: PluginStatus) -> OfferedTool:
        """The tool while its application is in this state; what stands in its way otherwise goes on to."""
        if self.reason not in {None, _PLUGIN_GONE}:
            return self
        away = status == "detached"
        return self.model_copy(update={"available": not away, "reason": _PLUGIN_GONE if away else None})

    def definition(self) -> dict[str, JsonValue]:
        """The tool as its application registered it."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"available", "reason"})


class ToolUpdates(_Event):
    """Tools that came, the names of those that went, and tools that have another definition than before."""

    added: tuple[OfferedTool, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[OfferedTool, ...] = ()


class ToolsChanged(_Event):
    """The tools of a session are others from this `revision` on; `timestamp` is ISO 8601 in UTC."""

    session_code: str
    updates: ToolUpdates
    revision: int
    timestamp: str
    reason: str = ""


class StatusChanged(_Event):
    """The session's application came or went; its tools are available with it."""

    session_code: str
    status: PluginStatus
    timestamp: str


class Snapshot(_Event):
    """Everything about a session's tools at one moment.

    Without a registration (`registered`) they are the host's default tools for sessions.
    """

    session_code: str
    revision: int
    registered: bool
    plugin_status: PluginStatus
    tools: tuple[OfferedTool, ...]

    def after(self, change: ToolsChanged | StatusChanged) -> Snapshot:
        """The snapshot after a change that follows it."""
        if isinstance(change, StatusChanged):
            tools = tuple(tool.while_plugin_is(change.status) for tool in self.tools)
            return self.model_copy(update={"plugin_status": change.status, "tools": tools})
        updates = change.updates
        own = {tool.name: tool for tool in self.tools} if self.registered else {}
        for name in updates.removed:
            own.pop(name, None)
        own |= {tool.name: tool for tool in (*updates.modified, *updates.added)}
        tools = tuple(tool.while_plugin_is(self.plugin_status) for tool in own.values())
        return self.model_copy(update={"revision": change.revision, "registered": True, "tools": tools})


class Resumed(_Event):
    """The stream goes on where it broke: nothing was missed."""

    resumed: Literal[True]


class ToolRequest(_Event):
    """A call of a tool that waits for this application's answer; sent again, it has the same `id`.

    `call_id` is the caller's own, `host_request_id` the one in the host's log.
    """

    id: str
    tool: str
    arguments: Mapping[str, JsonValue] = {}
    call_id: str = ""
    host_request_id: str = ""


class ToolCancelled(_Event):
    """The host no longer waits for the response to this request."""

    id: str
    reason: str = ""


Change = Snapshot | ToolsChanged | StatusChanged

_READERS = {
    "connected": TypeAdapter[Snapshot | Resumed](Snapshot | Resumed).validate_json,
    "tool-availability-update": ToolsChanged.model_validate_json,
    "plugin-status": StatusChanged.model_validate_json,
}


async def watch(
    url: str, code: str, *, api_key: str | None = None, http: AsyncClient | None = None, backoff: Backoff | None = None
) -> AsyncGenerator[Change]:
    """A snapshot of the session's tools, then every change, for as long as the session lives.

    It connects again by itself; where changes were missed meanwhile, a new snapshot stands in their place. `http`: a
    client of one's own, with certificates or a proxy, which is left open. Close the generator when leaving it early
    (`contextlib.aclosing`). Raises `SessionOver` in the end, and `HostUnreachable` only where the first connection
    cannot be made.
    """
    backoff = backoff or Backoff()
    async with AsyncExitStack() as stack:
        client = http or await stack.enter_async_context(AsyncClient())
        host = HostRequests(client, url, api_key, backoff.answer_s)
        stream = EventStream(host, f"/api/sessions/{code}/stream", _READERS, backoff)
        changes = await stack.enter_async_context(aclosing(stream.events(await stream.opened())))
        async for change in changes:
            if not isinstance(change, Resumed):
                yield change
