"""The streams for the SDK's dispatcher, over a child process or over HTTP."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from toolplug.mcp.child_output import PacedLog
from toolplug.mcp.child_process import Child
from toolplug.mcp.sdk.fault_isolation import OneAnswer
from toolplug.mcp.sdk.line_streams import MessagesIn, MessagesOut
from toolplug.mcp.sdk.pinned_transport import CONNECT_S, MAX_ANSWER_BYTES, CheckedNetwork, PinnedTransport
from toolplug.mcp.server import Command, Endpoint


class Authorized(httpx2.AsyncBaseTransport):
    """Sends through `transport`, also what `auth` needs to know of the server and its authorization server."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, auth: httpx2.Auth) -> None:
        self._client = httpx2.AsyncClient(transport=transport, auth=auth, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, which has its own time limits. Raises what `transport` raises, and `OAuthFlowError`."""
        return await self._client.send(request, stream=True, follow_redirects=False)

    async def aclose(self) -> None:
        """Close `transport`."""
        await self._client.aclose()


_WRITE_S = 30.0

_LOG = logging.getLogger("toolplug.mcp.http")


class Wire(NamedTuple):
    """An open way to a server. `why` says what is known of its end, after a short wait where more may come."""

    read: ReadStream[SessionMessage | Exception]
    write: WriteStream[SessionMessage]
    why: Callable[[], Awaitable[str]]


@asynccontextmanager
async def over_pipes(command: Command, folder: Path) -> AsyncGenerator[Wire]:
    """Start a command and speak with it. It has ended, with all that it started, when this has been left."""
    environment = {**get_default_environment(), **command.env}
    child = await Child.start(command, environment=environment, folder=folder)
    try:
        read = MessagesIn(child)

        async def why() -> str:
            return read.ended_because or await child.obituary()

        yield Wire(read, MessagesOut(child), why)
    finally:
        await child.aclose()


@asynccontextmanager
async def over_http(
    endpoint: Endpoint,
    network: CheckedNetwork,
    tls: ssl.SSLContext | None,
    auth: httpx2.Auth | None,
    gone: Callable[[], None],
) -> AsyncGenerator[Wire]:
    """Speak with an endpoint; nothing is asked of it yet. `gone` is told when it cannot be reached any more."""
    ends: list[str] = []

    def ended(reason: str) -> None:
        ends.append(reason)
        gone()

    async def why() -> str:
        return ends[0] if ends else ""

    timeout = httpx2.Timeout(connect=CONNECT_S, read=None, write=_WRITE_S, pool=CONNECT_S)
    pinned = PinnedTransport(network, tls)
    async with pinned if auth is None else Authorized(pinned, auth) as server:
        answering = OneAnswer(server, PacedLog(_LOG), ended)
        async with (
            httpx2.AsyncClient(
                transport=answering, headers=dict(endpoint.headers), timeout=timeout, trust_env=False
            ) as http,
            streamable_http_client(endpoint.url, http_client=http, max_sse_event_size=2 * MAX_ANSWER_BYTES) as streams,
        ):
            yield Wire(*streams, why)
