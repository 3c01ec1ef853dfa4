"""One connection of the SDK from handshake to end, in a task of its own, with its notifications.

The SDK's task groups and cancel scopes stay within that task, so that what breaks in them reaches nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from time import monotonic
from typing import cast

import anyio
import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolplug.catalog.text import cleaned, in_one_line
from toolplug.config.masking import masked
from toolplug.mcp.connection import ConnectionFailed, OnChange, ServerConnection
from toolplug.mcp.connection_strategies import Restarts
from toolplug.mcp.sdk.connection import RawListing, SdkConnection
from toolplug.mcp.sdk.messages import FAILED, is_closed
from toolplug.mcp.sdk.streams import Wire

_REFUSALS = 3


async def follow_news(session: ClientSession, on_change: OnChange) -> None:
    """Call `on_change` for each change, and after a gap, in which one may have been missed.

    Returns where the server has no such stream: it is of the older era, or does not honour the subscription, or refuses
    it again and again. One that cannot answer, or whose streams do not last, is asked ever more rarely.
    """
    if session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    restarts, refused, heard = Restarts(), 0, False
    while refused < _REFUSALS:
        since: float | None = None
        try:
            async with listen(session, tools_list_changed=True) as subscription:
                if not subscription.honored.tools_list_changed:
                    return
                since = monotonic()
                if heard:
                    on_change()
                heard = True
                async for _ in subscription:
                    on_change()
        except SubscriptionLost:
            pass
        except MCPError as error:
            refused += not (heard or error.code == FAILED or is_closed(error))
        if since is None:
            restarts.failed()
        else:
            restarts.lasted(monotonic() - since)
        await asyncio.sleep(restarts.pause_s())


class ProbeUnanswered(Exception):
    """The server ended instead of answering a request that it may not know."""


async def negotiate(session: ClientSession, *, probe: bool) -> None:
    """Agree on a version: `server/discover` where `probe`, else and after any other answer the `initialize` handshake.

    A server that took longer to start than the probe waits may have answered it meanwhile; it then refuses the
    handshake and is probed again. Raises `ProbeUnanswered`, and `MCPError`, `ValidationError` and `RuntimeError` as the
    session does.
    """
    if probe and await _discovered(session):
        return
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION or not _any(_supported(error), MODERN_PROTOCOL_VERSIONS):
            raise
        await session.discover()


async def _discovered(session: ClientSession) -> bool:
    try:
        await session.discover()
    except MCPError as error:
        if is_closed(error):
            raise ProbeUnanswered(error.message) from None
        if error.code == FAILED:
            raise
        supported = _supported(error)
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


def _supported(error: MCPError) -> Sequence[str]:
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

_MAX_REASON = 1_000

_LOG = logging.getLogger("toolplug.mcp")

Open = Callable[[Callable[[], None]], AbstractAsyncContextManager[Wire]]
"""Opens a way to a server; the callback tells that the server can no longer be reached over it."""


class Life:
    """A connection. `live` is its task; `opened` and `end` are for who wanted it.

    `probes` are the attempts in order: whether a server is asked for the newer era first. A server may end on a request
    that it does not know, and is then started once more. `secrets` are in no text of a failure.
    """

    def __init__(self, opening: Open, on_change: OnChange, *, probes: Sequence[bool], secrets: Sequence[str]) -> None:
        self._opening = opening
        self._on_change = on_change
        self._probes = probes
        self._secrets = secrets
        self._opened: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()
        self._lost = asyncio.Event()
        self._agreed = False
        self._running = False
        self._task = asyncio.create_task(self._live(), name="toolplug-mcp-connection")

    async def opened(self) -> ServerConnection:
        """The connection, once both sides agree. Raises `ConnectionFailed`."""
        return await asyncio.shield(self._opened)

    async def end(self) -> None:
        """Let go of the server, also where it is still being opened; takes at most five seconds, cancelled or not."""
        self._lost.set()
        if not self._opened.done():
            self._opened.cancel()
            self._task.cancel()
        cancelled: asyncio.CancelledError | None = None
        closes_at = asyncio.get_running_loop().time() + CLOSE_S
        with anyio.CancelScope(shield=True):
            while not self._task.done() and (left := closes_at - asyncio.get_running_loop().time()) > 0:
                try:
                    await asyncio.wait({self._task}, timeout=left)
                except asyncio.CancelledError as error:
                    cancelled = error
        if not self._task.done():
            _LOG.error("a connection to a server has not ended after %g s", CLOSE_S)
            self._task.cancel()
        if cancelled is not None:
            raise cancelled

    async def _live(self) -> None:
        try:
            for probe in self._probes:
                if await self._lived(probe=probe):
                    break
        except asyncio.CancelledError:
            if not self._lost.is_set():
                raise
        except BaseException as error:  # noqa: BLE001  a SystemExit that leaves a task ends the loop
            self._fail(error)
        finally:
            self._fail(ConnectionFailed("the connection has ended"))

    async def _lived(self, *, probe: bool) -> bool:
        """False where the server ended instead of answering the probe and may be tried without."""
        async with self._opening(self._lost.set) as wire:
            listing = RawListing(JSONRPCDispatcher(wire.read, wire.write), self._dispatcher_ended)
            info = types.Implementation(name="toolplug", version=version("toolplug"))
            self._running = True
            async with ClientSession(dispatcher=listing, client_info=info, message_handler=self._heard) as session:
                try:
                    async with asyncio.timeout(HANDSHAKE_S):
                        await negotiate(session, probe=probe)
                except (ProbeUnanswered, MCPError, ValidationError, RuntimeError, TimeoutError) as error:
                    if isinstance(error, ProbeUnanswered) and False in self._probes:
                        return False
                    raise ConnectionFailed(self._readable(await wire.why() or _words(error))) from None
                await self._stay(session, listing, wire)
        return True

    async def _stay(self, session: ClientSession, listing: RawListing, wire: Wire) -> None:
        async def why() -> str:
            return self._readable(await wire.why())

        self._agreed = True
        if not self._running:
            self._lost.set()
        if not self._opened.done():
            self._opened.set_result(SdkConnection(session, listing, self._lost, why))
        news = asyncio.create_task(follow_news(session, self._on_change), name="toolplug-mcp-news")
        try:
            await self._lost.wait()
        finally:
            news.cancel()
            await asyncio.wait({news})
        if not news.cancelled() and (error := news.exception()) is not None:
            _LOG.warning("the news of a server's tools ended with %s", type(error).__name__)

    def _dispatcher_ended(self) -> None:
        self._running = False
        if self._agreed:
            self._lost.set()

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()

    def _fail(self, error: BaseException) -> None:
        """Tell who waits for the opening; afterwards the end of the connection says enough."""
        self._lost.set()
        if self._opened.done():
            return
        failed = error if isinstance(error, ConnectionFailed) else ConnectionFailed(self._readable(_words(error)))
        self._opened.set_exception(failed)
        self._opened.exception()

    def _readable(self, text: str) -> str:
        return masked(in_one_line(cleaned(text)), self._secrets)[:_MAX_REASON]


def _words(error: BaseException) -> str:
    """What an exception says; of a group, what its first one says."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]  # what a group holds is not narrowed
    if isinstance(error, TimeoutError):
        return f"it did not agree on a version of the protocol within {HANDSHAKE_S:g} s"
    if isinstance(error, ValidationError):
        return "its answer to the first request does not follow the protocol"
    if isinstance(error, ConnectionFailed | ProbeUnanswered | MCPError | RuntimeError):
        return str(error)
    return type(error).__name__
