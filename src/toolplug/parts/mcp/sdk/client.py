"""Connecting to MCP servers with the SDK's client: each connection is a task of its own, over a child process or HTTP.

Connector → ConnectionTask → Streams → JSONRPCDispatcher → RawListing → ClientSession → SdkConnection
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import NamedTuple, cast

import httpx2
import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolplug.catalog.text import clean_text, in_one_line
from toolplug.config.masking import mask_secrets
from toolplug.net.checked_transport import (
    CONNECT_S,
    PORTS,
    CheckedNetwork,
    PinnedTransport,
)
from toolplug.net.egress import Egress, Resolve, resolve_host
from toolplug.parts.mcp.client.child_process import Child, RateLimitedLog, secrets_of
from toolplug.parts.mcp.client.connection import (
    Connect,
    ConnectionFailed,
    CredentialRefused,
    Extensions,
    OnChange,
    OpeningRefused,
    ServerConnection,
)
from toolplug.parts.mcp.client.connection_strategies import Restarts
from toolplug.parts.mcp.client.server_config import ClientCredentials, Command, Endpoint, Transport
from toolplug.parts.mcp.limits import MAX_MESSAGE_BYTES
from toolplug.parts.mcp.sdk.connection import RawListing, SdkConnection
from toolplug.parts.mcp.sdk.fault_isolation import FaultIsolatingTransport
from toolplug.parts.mcp.sdk.line_streams import FAILED, UNAUTHORIZED, MessagesIn, MessagesOut, Waiting, is_closed
from toolplug.parts.mcp.sdk.oauth import Authorized, ServerToken
from toolplug.parts.mcp.sdk.resource_updates import ResourceUpdates
from toolplug.runtime.tasks import OpeningFailed, OwnedTask
from toolplug.runtime.threads import in_own_thread

_WRITE_S = 30.0

_HTTP_LOG = logging.getLogger("toolplug.mcp.http")


class Streams(NamedTuple):
    """The open streams of a server. `why` returns why they ended, after a short wait for the last output."""

    read: ReadStream[SessionMessage | Exception]
    write: WriteStream[SessionMessage]
    why: Callable[[], Awaitable[str]]


@asynccontextmanager
async def over_pipes(command: Command, folder: Path) -> AsyncGenerator[Streams]:
    """Start a command and open streams to it. On exit, it and all that it started have ended."""
    # The command's own variables come last and win; of the host's environment only the SDK's short list is passed on.
    environment = {"COLUMNS": _LOG_COLUMNS, **get_default_environment(), **command.env}
    child = await Child.start(command, environment=environment, folder=folder)
    try:
        waiting: Waiting = {}
        read = MessagesIn(child, waiting)

        async def why() -> str:
            return read.ended_because or await child.exit_reason()

        yield Streams(read, MessagesOut(child, waiting), why)
    finally:
        await child.aclose()


@asynccontextmanager
async def over_http(
    endpoint: Endpoint,
    network: CheckedNetwork,
    tls: ssl.SSLContext | None,
    token: ServerToken | None,
    gone: Callable[[], None],
) -> AsyncGenerator[Streams]:
    """Open streams to an endpoint, without a request yet. `gone` is called when it can no longer be reached."""
    ends: list[str] = []

    def note_end(reason: str) -> None:
        ends.append(reason)
        gone()

    async def why() -> str:
        return ends[0] if ends else ""

    # No limit on reading: a stream may be silent for hours, and each request has its own deadline.
    timeout = httpx2.Timeout(connect=CONNECT_S, read=None, write=_WRITE_S, pool=CONNECT_S)
    pinned = PinnedTransport(network, tls, max_answer_bytes=MAX_MESSAGE_BYTES)
    async with pinned if token is None else Authorized(pinned, token) as server:
        answering = FaultIsolatingTransport(server, RateLimitedLog(_HTTP_LOG), note_end)
        async with (
            httpx2.AsyncClient(
                transport=answering, headers=dict(endpoint.headers), timeout=timeout, trust_env=False
            ) as http,
            streamable_http_client(endpoint.url, http_client=http, max_sse_event_size=2 * MAX_MESSAGE_BYTES) as streams,
        ):
            yield Streams(*streams, why)


# The SDK's task groups and cancel scopes stay within that task, so that what breaks in them reaches nobody else.

_REFUSALS = 3


async def follow_news(session: ClientSession, on_change: OnChange, announces: asyncio.Future[bool]) -> None:
    """Call `on_change` for each change, and after a gap in which one may have been missed.

    Sets `announces` once it is known whether the server has a stream of notifications; a server of the older era has
    said so in the handshake.

    Returns if there is no such stream: the server is of the older era, does not honour the subscription, or refuses it
    repeatedly. A server that cannot answer, or whose streams do not last, is asked at growing intervals.
    """
    if session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        capabilities = session.server_capabilities
        tools = None if capabilities is None else capabilities.tools
        _set_announces(announces, tools is not None and tools.list_changed is True)
        return
    restarts, refused, heard = Restarts(), 0, False
    while refused < _REFUSALS:
        since: float | None = None
        try:
            async with listen(
                session, tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            ) as subscription:
                honored = subscription.honored
                _set_announces(announces, honored.tools_list_changed is True)
                if not (honored.tools_list_changed or honored.prompts_list_changed or honored.resources_list_changed):
                    return
                since = monotonic()
                # Not the first time: the list has just been read. After a gap a change may have been missed.
                if heard:
                    on_change()
                heard = True
                async for _ in subscription:
                    on_change()
        except SubscriptionLost:
            pass
        except MCPError as error:
            # A server that had a stream before does not refuse it for good: it restarts.
            is_refusal = not (heard or error.code in {FAILED, UNAUTHORIZED} or is_closed(error))
            refused += is_refusal
            if is_refusal:
                _set_announces(announces, False)
        if since is None:
            restarts.record_failure()
        else:
            restarts.record_end(monotonic() - since)
        await asyncio.sleep(restarts.pause_s())


def _set_announces(announces: asyncio.Future[bool], value: bool) -> None:
    if not announces.done():
        announces.set_result(value)


class ProbeUnanswered(Exception):
    """The server ended instead of answering a request that it may not know."""


async def negotiate(session: ClientSession, *, probe: bool) -> None:
    """Agree on a version: `server/discover` if `probe`; otherwise, or after an error, the `initialize` handshake.

    A server that starts slower than the probe waits may answer it later; it then refuses the handshake and is probed
    again. Raises `ProbeUnanswered`, and the session's `MCPError`, `ValidationError` and `RuntimeError`.
    """
    # The newer era first: a server that knows it needs one request less.
    if probe and await _discover(session):
        return
    try:
        await session.initialize()
    except MCPError as error:
        # A slow server answers the probe after the client has given it up, and takes the handshake for a downgrade.
        if error.code != UNSUPPORTED_PROTOCOL_VERSION or not _any(_read_supported(error), MODERN_PROTOCOL_VERSIONS):
            raise
        await session.discover()


async def _discover(session: ClientSession) -> bool:
    try:
        await session.discover()
    except MCPError as error:
        if is_closed(error):
            raise ProbeUnanswered(error.message) from None
        if error.code in {FAILED, UNAUTHORIZED}:
            raise
        supported = _read_supported(error)
        if (
            error.code == UNSUPPORTED_PROTOCOL_VERSION
            and supported
            and not _any(supported, HANDSHAKE_PROTOCOL_VERSIONS)
        ):
            raise
        return False
    except (ValidationError, RuntimeError):
        return False
    return True


def _read_supported(error: MCPError) -> Sequence[str]:
    try:
        return types.UnsupportedProtocolVersionErrorData.model_validate(error.error.data).supported
    except ValidationError:
        return ()


def _any(versions: Sequence[str], known: Sequence[str]) -> bool:
    return any(version in known for version in versions)


HANDSHAKE_S = 60.0
"""How long a server may take from its start to an agreement on the version; a first start may fetch packages."""

CLOSE_S = 4.8
"""How long an end may take; a child's own takes at most four seconds."""

_LOG_COLUMNS = "200"
"""Wide enough that rich, with which many servers log, does not break the paths of a traceback."""
_MAX_REASON = 1_000

_LOG = logging.getLogger("toolplug.mcp")

_LIST_CHANGED = (
    types.ToolListChangedNotification,
    types.PromptListChangedNotification,
    types.ResourceListChangedNotification,
)

Open = Callable[[Callable[[], None]], AbstractAsyncContextManager[Streams]]
"""Opens a way to a server; the callback tells that the server can no longer be reached over it."""


class ConnectionTask:
    """A connection to a server, opened and closed by its own task; `end` must be called in any case.

    `probes` are the attempts in order: whether to ask the server for the newer era first. A server that ends on a
    request which it does not know is started once more. `secrets` are masked in the texts of failures. Without
    `news` changes of a server of the newer era are not followed.
    """

    def __init__(
        self,
        opening: Open,
        on_change: OnChange,
        *,
        probes: Sequence[bool],
        secrets: Sequence[str],
        news: bool = True,
        extensions: Extensions = lambda: (),
    ) -> None:
        self._opening = opening
        self._news = news
        self._extensions = extensions
        self._on_change = on_change
        self._probes = probes
        self._secrets = secrets
        # A future, not an event: callers wait for the answer at most a second, and go on without it.
        self._announces: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._agreed = False
        self._updates: ResourceUpdates | None = None
        self._running = False
        self._owned: OwnedTask[ServerConnection] = OwnedTask(self._live, name="toolplug-mcp-connection")

    async def wait_open(self) -> ServerConnection:
        """Wait for the handshake and return the connection. Raises `ConnectionFailed`."""
        try:
            return await self._owned.wait_open()
        except OpeningFailed as failed:
            raise self._failure(failed.__cause__) from None

    async def end(self) -> None:
        """Close the connection, also while it is being opened. Takes at most five seconds, cancelled or not."""
        if not await self._owned.end(CLOSE_S):
            _LOG.error("a connection to a server has not ended after %g s", CLOSE_S)

    async def _live(self, owned: OwnedTask[ServerConnection]) -> None:
        for probe in self._probes:
            if await self._answers_probe(owned, probe=probe):
                break

    async def _answers_probe(self, owned: OwnedTask[ServerConnection], *, probe: bool) -> bool:
        """Return False if the server ended instead of answering the probe and can be retried without one."""
        async with self._opening(owned.ended.set) as wire:
            listing = RawListing(JSONRPCDispatcher(wire.read, wire.write), self._dispatcher_ended)
            info = types.Implementation(name="toolplug", version=version("toolplug"))
            self._running = True
            async with ClientSession(dispatcher=listing, client_info=info, message_handler=self._on_message) as session:
                try:
                    async with asyncio.timeout(HANDSHAKE_S):
                        await negotiate(session, probe=probe)
                except (ProbeUnanswered, MCPError, ValidationError, RuntimeError, TimeoutError) as error:
                    if isinstance(error, ProbeUnanswered) and False in self._probes:
                        return False
                    raise _kind_of(error)(self._readable(await wire.why() or _words(error))) from None
                await self._stay(owned, session, listing, wire)
        return True

    async def _stay(
        self, owned: OwnedTask[ServerConnection], session: ClientSession, listing: RawListing, wire: Streams
    ) -> None:
        async def why() -> str:
            return self._readable(await wire.why())

        # Before the check below: the dispatcher may end between the handshake and here.
        self._agreed = True
        if not self._running:
            owned.ended.set()
        updates = self._updates = ResourceUpdates(session)
        owned.hand_out(SdkConnection(session, listing, owned.ended, why, self._announces, updates, self._extensions))
        following = follow_news(session, self._on_change, self._announces) if self._news else asyncio.sleep(0)
        news = asyncio.create_task(following, name="toolplug-mcp-news")
        try:
            await owned.ended.wait()
        finally:
            news.cancel()
            # Waited for, so that its cancel scopes are left inside of this task's.
            await asyncio.wait({news})
            await updates.aclose()
        if not news.cancelled() and (error := news.exception()) is not None:
            _LOG.warning("the news of a server's tools ended with %s", type(error).__name__)

    def _dispatcher_ended(self) -> None:
        self._running = False
        if self._agreed:
            self._owned.ended.set()

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, _LIST_CHANGED):
            self._on_change()
        elif isinstance(message, types.ResourceUpdatedNotification) and self._updates is not None:
            self._updates.notify(str(message.params.uri))

    def _failure(self, error: BaseException | None) -> ConnectionFailed:
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]  # what a group holds is not narrowed
        if isinstance(error, ConnectionFailed):
            return error
        return ConnectionFailed("the connection has ended" if error is None else self._readable(_words(error)))

    def _readable(self, text: str) -> str:
        return mask_secrets(in_one_line(clean_text(text)), self._secrets)[:_MAX_REASON]


def _kind_of(error: BaseException) -> type[ConnectionFailed]:
    if not isinstance(error, MCPError) or error.code == FAILED or is_closed(error):
        return ConnectionFailed
    return CredentialRefused if error.code == UNAUTHORIZED else OpeningRefused


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not agree on a version of the protocol within {HANDSHAKE_S:g} s"
    if isinstance(error, ValidationError):
        return "its answer to the first request does not follow the protocol"
    if isinstance(error, ConnectionFailed | ProbeUnanswered | MCPError | RuntimeError):
        return str(error)
    return type(error).__name__


def connector(
    egress: Egress, folder: Path, resolve: Resolve = resolve_host, extensions: Extensions = lambda: ()
) -> Connect:
    """Return the function that connects to servers: `folder` is the default working directory, `egress` checks URLs."""
    return _Connector(egress, folder, resolve, extensions).connect


class _Connector:
    """Connects to servers and caches their OAuth tokens in memory."""

    def __init__(self, egress: Egress, folder: Path, resolve: Resolve, extensions: Extensions) -> None:
        self._egress = egress
        self._extensions = extensions
        self._folder = folder
        self._resolve = resolve
        self._tokens: dict[tuple[str, ClientCredentials], ServerToken] = {}
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def connect(self, transport: Transport, on_change: OnChange) -> AsyncGenerator[ServerConnection]:
        """Open a connection, which is closed within five seconds at the end of the block. Raises `ConnectionFailed`."""
        if isinstance(transport, Command):
            life = ConnectionTask(
                lambda _: over_pipes(transport, self._folder),
                on_change,
                probes=(True, False),
                secrets=secrets_of(transport),
                extensions=self._extensions,
            )
        else:
            life = ConnectionTask(
                lambda gone: self._over_http(transport, gone),
                on_change,
                probes=(True,),
                secrets=_secrets(transport),
                news=transport.listens,
                extensions=self._extensions,
            )
        try:
            yield await life.wait_open()
        finally:
            await life.end()

    @asynccontextmanager
    async def _over_http(self, endpoint: Endpoint, gone: Callable[[], None]) -> AsyncGenerator[Streams]:
        try:
            url = httpx2.URL(endpoint.url)
        except httpx2.InvalidURL as error:
            raise ConnectionFailed(f"the URL cannot be read: {error}") from None
        if url.scheme not in PORTS or not url.host:
            raise ConnectionFailed("the URL is neither http nor https")
        if self._tls is None and (url.scheme == "https" or endpoint.oauth is not None):
            self._tls = await in_own_thread(httpx2.create_ssl_context)  # reads a tenth of a second of certificates
        network = CheckedNetwork(self._egress, self._resolve, _list_trusted(endpoint))
        async with over_http(endpoint, network, self._tls, self._token(endpoint), gone) as wire:
            yield wire

    def _token(self, endpoint: Endpoint) -> ServerToken | None:
        if endpoint.oauth is None:
            return None
        # Tokens outlive a connection, and belong to the URL and the client that they were issued for.
        key = (endpoint.url, endpoint.oauth)
        if key not in self._tokens:
            self._tokens[key] = ServerToken(*key)
        return self._tokens[key]


def _list_trusted(endpoint: Endpoint) -> frozenset[tuple[str, int]]:
    """Return hosts and ports of the operator's URLs; for http at port 80 also those of https, for a redirect."""
    if not endpoint.trusted:
        return frozenset()
    issuer = None if endpoint.oauth is None else endpoint.oauth.issuer
    urls = [httpx2.URL(text) for text in (endpoint.url, issuer) if text is not None]
    places = {(url.raw_host.decode("ascii"), url.port or PORTS.get(url.scheme, 0)) for url in urls}
    return frozenset(places | {(host, PORTS["https"]) for host, port in places if port == PORTS["http"]})


def _secrets(endpoint: Endpoint) -> tuple[str, ...]:
    secret = () if endpoint.oauth is None else (endpoint.oauth.client_secret,)
    return (*endpoint.headers.values(), *secret)
