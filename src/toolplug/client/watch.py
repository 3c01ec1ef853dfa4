"""Following a session's tools from the model's side."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

from httpx2 import AsyncClient
from pydantic import TypeAdapter

from toolplug.client.changes import Resumed, Snapshot, StatusChanged, ToolsChanged
from toolplug.client.event_stream import EventStream
from toolplug.client.host_requests import HostRequests
from toolplug.client.pace import Pace

Change = Snapshot | ToolsChanged | StatusChanged

_READERS = {
    "connected": TypeAdapter[Snapshot | Resumed](Snapshot | Resumed).validate_json,
    "tool-availability-update": ToolsChanged.model_validate_json,
    "plugin-status": StatusChanged.model_validate_json,
}


async def watch(
    url: str, code: str, *, api_key: str | None = None, http: AsyncClient | None = None, pace: Pace | None = None
) -> AsyncGenerator[Change]:
    """A snapshot of the session's tools, then every change, for as long as the session lives.

    It connects again by itself; where changes were missed meanwhile, a new snapshot stands in their place. `http`: a
    client of one's own, with certificates or a proxy, which is left open. Close the generator when leaving it early
    (`contextlib.aclosing`). Raises `SessionOver` in the end, and `HostUnreachable` only where the first connection
    cannot be made.
    """
    pace = pace or Pace()
    async with AsyncExitStack() as stack:
        client = http or await stack.enter_async_context(AsyncClient())
        host = HostRequests(client, url, api_key, pace.answer_s)
        stream = EventStream(host, f"/api/sessions/{code}/stream", _READERS, pace)
        changes = await stack.enter_async_context(aclosing(stream.events(await stream.opened())))
        async for change in changes:
            if not isinstance(change, Resumed):
                yield change
