"""The events of one session as values; lost connections are reopened."""

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

from toolplug.client.host_requests import Backoff, HostRequests
from toolplug.errors import SessionOver

_LOG = logging.getLogger("toolplug.client")

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Twice what all definitions of one session may have together."""

Event = TypeVar("Event")
Readers = Mapping[str, Callable[[bytes], Event]]


class _Error(BaseModel):
    """The data of the host's final error event."""

    code: str
    message: str


class _Unreadable(Exception):
    """The data of an event does not fit its name."""


class EventStream(Generic[Event]):
    """Reads the events of one session, and reconnects when a connection breaks or falls silent.

    `readers` convert the data of events by name; a `ValueError` of one means invalid data. Other events are ignored.
    """

    def __init__(self, host: HostRequests, path: str, readers: Readers[Event], backoff: Backoff) -> None:
        self._host = host
        self._path = path
        self._readers = readers
        self._backoff = backoff
        self._last_id = ""

    async def events(self, first: Response | None = None) -> AsyncGenerator[Event]:
        """Yield each event once, in order; after missed events, a new snapshot. The caller closes the generator.

        `first`: a connection from `open_connection`. Raises `SessionOver`, and `HostRefused` if another attempt would
        be useless; never ends otherwise. If connections break as soon as they are open, the delay between them grows.
        """
        clock = asyncio.get_running_loop().time
        pause_s = 0.0
        while True:
            response = first or await self._backoff.retry(self.open_connection)
            first, opened_at = None, clock()
            async with aclosing(response):
                try:
                    async for sent in EventSource(response, MAX_EVENT_BYTES):
                        event = self._read(sent)
                        if event is not None:
                            yield event
                        # After the `yield`: an event that its reader has not finished with is sent again after a
                        # reconnection.
                        self._last_id = sent.id or self._last_id
                    _LOG.info("the host closed the event stream; connecting again")
                except RequestError as error:
                    _LOG.info("the event stream broke (%s); connecting again", str(error) or type(error).__name__)
                except _Unreadable as error:
                    self._last_id = ""
                    _LOG.warning("%s; asking for a snapshot", error)
            # Also a clean close counts: a host or proxy that closes each stream at once must not be asked in a loop.
            brief = clock() - opened_at < pause_s
            pause_s = min(pause_s * 2, self._backoff.longest_s) if brief else self._backoff.first_s
            await asyncio.sleep(random.uniform(0, pause_s))

    async def open_connection(self) -> Response:
        """Open one connection, which resumes after the last event that was received."""
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        return await self._host.open_events(self._path, headers, self._backoff.silence_s)

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
    """Ignores unknown keys, so that an older client can read the events of a newer host."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class OfferedTool(_Event):
    """A tool of a session. One that is not `available` cannot be called; `reason` says why."""

    name: str
    description: str = ""
    input_schema: Mapping[str, JsonValue]
    output_schema: Mapping[str, JsonValue] | None = None
    annotations: Mapping[str, JsonValue] | None = None
    requires: tuple[JsonValue, ...] | None = None
    available: bool = True
    reason: str | None = None

    def while_plugin_is(self, status: PluginStatus) -> OfferedTool:
        """Return the tool for this state of its application; other reasons for unavailability stay."""
        if self.reason not in {None, _PLUGIN_GONE}:
            return self
        away = status == "detached"
        return self.model_copy(update={"available": not away, "reason": _PLUGIN_GONE if away else None})

    def definition(self) -> dict[str, JsonValue]:
        """The tool as its application registered it."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"available", "reason"})


class ToolUpdates(_Event):
    """Added tools, the names of removed tools, and tools whose definition has changed."""

    added: tuple[OfferedTool, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[OfferedTool, ...] = ()


class ToolsChanged(_Event):
    """The session's tools have changed, with the new `revision`; `timestamp` is ISO 8601 in UTC.

    ```python
    from toolplug.client import Application, Snapshot, ToolsChanged, watch

    async def follow(url: str, application: Application) -> None:
        async for event in watch(url, application.code):
            if isinstance(event, Snapshot):
                print("there are", [tool.name for tool in event.tools])
            elif isinstance(event, ToolsChanged):
                print("new", [tool.name for tool in event.updates.added], "gone", event.updates.removed)
    ```
    """

    session_code: str
    updates: ToolUpdates
    revision: int
    timestamp: str
    reason: str = ""


class StatusChanged(_Event):
    """The session's application has come or gone, and with it its tools.

    ```python
    from toolplug.client import StatusChanged, watch

    async def report(url: str, code: str) -> None:
        async for event in watch(url, code):
            if isinstance(event, StatusChanged):
                print(event.timestamp, event.status)
    ```
    """

    session_code: str
    status: PluginStatus
    timestamp: str


class Snapshot(_Event):
    """The state of a session's tools: the host's default tools if the application has not `registered` its own.

    ```python
    from toolplug.client import OfferedTool, Snapshot, StatusChanged

    WHERE = {"sessionCode": "ABCDEFGH"}
    tools = (OfferedTool(name="add", inputSchema={"type": "object"}),)
    shown = Snapshot(**WHERE, revision=1, registered=True, pluginStatus="attached", tools=tools)
    later = shown.after(StatusChanged(**WHERE, status="detached", timestamp="2026-11-28T22:50:00Z"))
    assert not later.tools[0].available
    ```
    """

    session_code: str
    revision: int
    registered: bool
    plugin_status: PluginStatus
    tools: tuple[OfferedTool, ...]

    def after(self, change: ToolsChanged | StatusChanged) -> Snapshot:
        """Return the snapshot after the next change."""
        if isinstance(change, StatusChanged):
            tools = tuple(tool.while_plugin_is(change.status) for tool in self.tools)
            return self.model_copy(update={"plugin_status": change.status, "tools": tools})
        updates = change.updates
        # The first registration replaces the host's default tools.
        own = {tool.name: tool for tool in self.tools} if self.registered else {}
        for name in updates.removed:
            own.pop(name, None)
        own |= {tool.name: tool for tool in (*updates.modified, *updates.added)}
        tools = tuple(tool.while_plugin_is(self.plugin_status) for tool in own.values())
        return self.model_copy(update={"revision": change.revision, "registered": True, "tools": tools})


class Resumed(_Event):
    """The stream was resumed without missing an event."""

    resumed: Literal[True]


class ToolRequest(_Event):
    """A call that waits for this application's answer; it has the same `id` when it is sent again.

    `call_id` is the caller's own id, `host_request_id` the one in the host's log, `traceparent` and `tracestate` the
    caller's W3C headers.
    """

    id: str
    tool: str
    arguments: Mapping[str, JsonValue] = {}
    call_id: str = ""
    host_request_id: str = ""
    traceparent: str | None = None
    tracestate: str | None = None


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
    """Yield a snapshot of the session's tools, then each change, as long as the session lives.

    It reconnects by itself; a new snapshot replaces changes that were missed. `http`: your own client, for certificates
    or a proxy; it is not closed. Close the generator if you leave it early (`contextlib.aclosing`). Raises
    `SessionOver` at the end, and `HostUnreachable` only if the first connection fails.
    """
    backoff = backoff or Backoff()
    async with AsyncExitStack() as stack:
        client = http or await stack.enter_async_context(AsyncClient())
        host = HostRequests(client, url, api_key, backoff.answer_s)
        stream = EventStream(host, f"/api/sessions/{code}/stream", _READERS, backoff)
        changes = await stack.enter_async_context(aclosing(stream.events(await stream.open_connection())))
        async for change in changes:
            if not isinstance(change, Resumed):
                yield change
