"""The edge of `toolplug serve`: the limits of `http.edge` on connections and on incomplete requests.

With httptools, uvicorn limits neither the size of a request head nor its time, and takes trailer fields for headers. An
ASGI application sees a head only when it is complete, so the limits are here, around the parser.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, deque
from collections.abc import Callable
from http import HTTPStatus
from importlib import import_module
from random import getrandbits
from typing import Any

import httptools
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from toolplug.apart.limits import MAX_WORKER_MESSAGE, WORKERS_PATH
from toolplug.host.file.settings import EdgeSettings, Http
from toolplug.http.auth.peer import NO_ADDRESS, TrustedProxies, peer_of
from toolplug.http.errors import HttpProblem, draining

RATE_WINDOW_S = 10
"""Seconds over which `http.edge.body_bytes_per_s` is averaged, and for the rest of a body after its response."""
LINGER_S = 2.0
"""Seconds for which a refused connection stays open, so that its client reads the response; its input is dropped."""
WARN_EVERY_S = 60.0
AHEAD = 16
"""Requests that a client may have sent ahead of its responses; further ones are parsed when these are answered."""
AT_ONCE = 8 * 1024
"""Bytes that are parsed before the requests in them are counted: a quarter of a MiB has room for ten thousand."""
UNFINISHED_HEADS = 64
"""Incomplete heads of full size that one peer may have; they stay in memory until they are complete."""

_WORKER_PATH = WORKERS_PATH.encode()
_WEBSOCKET = "toolplug.cli.serving.websocket"
"""Imported when a worker dials in."""
_NOTHING = memoryview(b"")
_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")

_LOG = logging.getLogger("toolplug.cli.serve")


class Edge:
    """Counts the connections of one server, within the limits of the current configuration."""

    def __init__(self, settings: Callable[[], Http]) -> None:
        self._settings = settings
        # The settings that `_trusted` was made of; a reload gives another object.
        self._read: Http | None = None
        self._trusted = TrustedProxies()
        self._connections = 0
        self._by_peer: Counter[str] = Counter()
        self._unfinished_bytes: Counter[str] = Counter()
        self._warn_at = 0.0

    @property
    def limits(self) -> EdgeSettings:
        return self._settings().edge

    @property
    def trusted_proxies(self) -> TrustedProxies:
        """The proxies whose `X-Forwarded-For` is trusted."""
        settings = self._settings()
        if settings is not self._read:
            self._read, self._trusted = settings, TrustedProxies(settings.trusted_proxies)
        return self._trusted

    def open(self) -> bool:
        """Count a connection, and return whether it is within the limit. Call `close` once, in either case."""
        self._connections += 1
        limit = self.limits.connections
        return self._connections <= limit or self._refuse_connection(
            f"over {limit} connections (http.edge.connections)"
        )

    def close(self) -> None:
        """Count one connection less."""
        self._connections -= 1

    def take(self, peer: str) -> bool:
        """Count a connection of the peer if the limit allows; return whether it does. Then call `give_back` once."""
        limit = self.limits.connections_per_peer
        if self._by_peer[peer] >= limit:
            return self._refuse_connection(f"over {limit} connections of {peer} (http.edge.connections_per_peer)")
        self._by_peer[peer] += 1
        return True

    def give_back(self, peer: str) -> None:
        """Count one connection of the peer less."""
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]

    def hold(self, peer: str, size: int) -> bool:
        """Change the bytes of the peer's incomplete heads by `size`; return whether the sum is within the limit."""
        self._unfinished_bytes[peer] += size
        if not self._unfinished_bytes[peer]:
            del self._unfinished_bytes[peer]
        limit = UNFINISHED_HEADS * self.limits.head_bytes
        # Bytes that are given back are never refused, even if those of the peer are too many after a reload.
        if size <= 0 or self._unfinished_bytes[peer] <= limit:
            return True
        return self._refuse_connection(f"over {limit} bytes of unfinished heads of {peer}")

    def _refuse_connection(self, why: str) -> bool:
        """Warn of a refused connection, at most once a minute, and return False."""
        now = asyncio.get_running_loop().time()
        if now >= self._warn_at:
            self._warn_at = now + WARN_EVERY_S
            _LOG.warning("a connection was closed: %s; further ones are not logged for a minute", why)
        return False


class EdgeConfig(uvicorn.Config):
    """The configuration of uvicorn for an application behind an edge."""

    def __init__(self, app: ASGIApp, edge: Edge) -> None:
        super().__init__(
            app,
            http=_EdgeConnection,
            # With `auto` an application whose start raises would be served all the same.
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # it trusts every proxy on loopback; `http.trusted_proxies` says which are trusted
            # Only a worker that dials in has a WebSocket, and `auto` would import a library for it at the start.
            ws="none",
            ws_max_size=MAX_WORKER_MESSAGE,
            ws_per_message_deflate=False,  # memory and time for each worker, of frames that are short or compressed
            ws_ping_interval=None,  # workers have signs of life of their own, in both directions
        )
        self.edge: Edge = edge

    def connection(self, server_state: ServerState, app_state: dict[str, Any]) -> asyncio.Protocol:
        """Return the protocol of a connection that was accepted elsewhere, as uvicorn makes its own."""
        return _EdgeConnection(self, server_state, app_state)


class _EdgeConnection(HttpToolsProtocol):
    """A connection within the limits of the edge.

    It is in a body (`_in_body`), in a head, or between requests. `_deadline` is its only timer: the end of the time for
    a head, the next check of the rate of a body, or the end of a refused connection.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, EdgeConfig)
        self._edge = config.edge
        self._limits = config.edge.limits
        self.timeout_keep_alive = self._limits.idle_s  # pyright: ignore[reportIncompatibleVariableOverride, reportAttributeAccessIssue]  call_later takes fractions
        self._deadline: asyncio.TimerHandle | None = None
        self._refused = False
        self._upgrading = self._upgraded = self._ignores_upgrade = False
        self._in_head = False
        self._in_body = False
        self._heads = 0
        self._head_bytes = 0
        self._body_parts = 0
        self._framing_bytes = 0
        self._arrived_bytes = 0
        self._arrivals: deque[int] = deque(maxlen=RATE_WINDOW_S)
        self._held_bytes = 0
        self._unparsed = b""
        self._peer = NO_ADDRESS
        self._behind_proxy = False
        self._peers: deque[str] = deque()

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and close it if there are too many."""
        super().connection_made(transport)
        if self.client is not None:
            self._peer = self.client[0]
        self._behind_proxy = self._peer in self._edge.trusted_proxies
        # The connections of a proxy are those of many clients: each is counted while its request runs.
        if self._edge.open() and (self._behind_proxy or self._take(self._peer)):
            self._set_deadline(self._limits.head_s, self._head_late)
        else:
            self._refused = True
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        super().connection_lost(exc)
        self._clear_deadline()
        self._hold_head(0)
        self._edge.close()
        # More than one where a proxy has sent requests ahead of their responses.
        while self._peers:
            self._edge.give_back(self._peers.popleft())

    def data_received(self, data: bytes) -> None:
        """Parse the data; of a head at most as much as the limit allows."""
        self._unset_keepalive_if_required()
        data, self._unparsed = self._unparsed + data, b""
        while data and not self._refused and not self._upgraded and not self.transport.is_closing():
            if len(self.pipeline) >= AHEAD:
                self._unparsed = data
                return
            room = AT_ONCE
            if not self._in_body:
                room = min(room, self._limits.head_bytes - self._head_bytes)
                if room <= 0:
                    self._refuse_head()
                    return
            piece, data = (data, b"") if len(data) <= room else (data[:room], data[room:])
            self._parse(piece)
        if not self._refused and not self._upgraded and not self.transport.is_closing():
            if self._head_bytes != self._held_bytes and not self._hold_head(self._head_bytes):
                self._refused = True
                self.transport.close()
                return
            self._set_next_deadline()

    def _hold_head(self, size: int) -> bool:
        """Count the bytes of the incomplete head for a peer that is no proxy; return False if they are too many."""
        more, self._held_bytes = size - self._held_bytes, size
        return self._behind_proxy or not more or self._edge.hold(self._peer, more)

    def _parse(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest and not self._refused:
            rest = self._parse_next(rest)

    def _parse_next(self, piece: memoryview) -> memoryview:
        """Give the parser the data, and return what is still to be parsed."""
        heads, parts, in_body = self._heads, self._body_parts, self._in_body
        parser = self.parser
        assert parser is not None, "the connection is open"
        try:
            parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._begin_websocket()
                return _NOTHING
            self._ignore_upgrade(parser)
            return piece[upgrade.args[0] :]
        except httptools.HttpParserError:
            if not self._refused:
                self._refuse(HttpProblem(400, "malformed_request", "what was sent is not an HTTP request"))
            return _NOTHING
        if not self._in_body:  # the piece is of one head, or another head begins in it
            self._head_bytes = self._head_bytes + len(piece) if heads == self._heads and not in_body else 0
            return _NOTHING
        self._arrived_bytes += len(piece)
        # Chunk sizes, chunk extensions and trailers are not part of the body, but the parser keeps them in memory.
        has_content = parts != self._body_parts or heads != self._heads
        self._framing_bytes = 0 if has_content else self._framing_bytes + len(piece)
        if self._framing_bytes > self._limits.head_bytes:
            self._refuse_head()
        return _NOTHING

    def _ignore_upgrade(self, parser: httptools.HttpRequestParser) -> None:
        """Parse a head again as that of a request which asks for no upgrade.

        The parser takes what follows a head with an upgrade for another protocol. Java's own client asks for HTTP/2
        with its first request, which may have a body.
        """
        lines = [b"%s %s HTTP/%s" % (parser.get_method(), self.url, parser.get_http_version().encode())]
        lines += [b"%s: %s" % field for field in self.scope["headers"] if field[0] != b"upgrade"]
        self._ignores_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"\r\n".join([*lines, b"\r\n"]))

    # A worker that dials in

    def _should_upgrade(self) -> bool:
        return self._upgrading

    def _asks_for_websocket(self) -> bool:
        asks = self.url.startswith(_WORKER_PATH) and self._get_upgrade() == b"websocket" and not self._is_busy()
        # Another method is that of a request which the routes refuse.
        return asks and self.parser is not None and self.parser.get_method() == b"GET"

    def _begin_websocket(self) -> None:
        """Pass the connection on; it counts for the edge until it is lost."""
        self._hold_head(0)
        self._upgraded = True
        if not import_module(_WEBSOCKET).begin(self, self.connection_lost):
            self._in_body = False  # no application has it
            self._refuse(HttpProblem(400, "malformed_request", "what was sent is no request of a WebSocket"))

    # The parser's callbacks

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field without the blanks after its value, which the parser leaves (RFC 9112, section 5.1)."""
        super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._in_head = False
        self._upgrading = self._asks_for_websocket()
        assert self.parser is not None, "it calls this"
        if self.parser.should_upgrade() and not self._upgrading and self._get_upgrade() is not None:
            self._ignores_upgrade = True
            return
        self._heads += 1
        self._head_bytes = self._framing_bytes = self._arrived_bytes = 0
        self._arrivals.clear()
        self._clear_deadline()
        if not self.url.startswith(b"/"):
            self._use_authority()
        if self._behind_proxy:
            self._use_forwarded()
        if not self._refused:
            super().on_headers_complete()
        self.headers = []  # the fields of trailers come here and are no headers (RFC 9110, section 6.5.1)
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body_parts += 1
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        if self._ignores_upgrade:
            return
        self._in_body = False
        if not self._refused:
            self._clear_deadline()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Release the peer of a proxy's request, then serve the next request or wait for it."""
        if self._behind_proxy and self._peers:
            self._edge.give_back(self._peers.popleft())
        super().on_response_complete()
        if self._unparsed and not self.transport.is_closing():
            self.flow.pause_reading()
            if not self.pipeline:
                self.loop.call_soon(self.data_received, b"")

    def _use_authority(self) -> None:
        """Let the authority of a target in absolute form replace the Host header (RFC 9112, section 3.2.2)."""
        found = _AUTHORITY.match(self.url)
        places = [index for index, (name, _) in enumerate(self.headers) if name == b"host"]
        if found is not None and len(places) == 1:
            self.headers[places[0]] = (b"host", found[1])

    def _use_forwarded(self) -> None:
        """Take the scheme that a trusted proxy names, and count its client among the peers while the request runs."""
        for name, value in self.headers:
            if name == b"x-forwarded-proto" and value in (b"http", b"https"):
                self.scope["scheme"] = value.decode()  # pyright: ignore[reportGeneralTypeIssues]
        if not self._take(peer_of(self.scope, self._edge.trusted_proxies)):  # pyright: ignore[reportArgumentType]
            self._refused = True
            self.transport.close()

    def _take(self, peer: str) -> bool:
        taken = self._edge.take(peer)
        if taken:
            self._peers.append(peer)
        return taken

    # Deadlines

    def _set_next_deadline(self) -> None:
        """Start the timer for an incomplete head or body, or for an idle connection that uvicorn does not time."""
        if self._deadline is not None:
            return
        if self._in_body:
            self._set_deadline(1.0, self._look_at_rate)
        elif self._in_head or self._head_bytes:
            self._set_deadline(self._limits.head_s, self._head_late)
        elif not self._is_busy() and self.timeout_keep_alive_task is None:  # the body ended after its response
            self.timeout_keep_alive_task = self.loop.call_later(self._limits.idle_s, self.timeout_keep_alive_handler)

    def _head_late(self) -> None:
        self._deadline = None
        if self._is_busy():
            self._set_deadline(self._limits.head_s, self._head_late)
        elif self._in_head or self._head_bytes:
            message = f"the head of the request was not complete after {self._limits.head_s:g} s"
            self._refuse(HttpProblem(408, "request_timeout", message))
        else:
            self.transport.close()

    def _look_at_rate(self) -> None:
        """Record the bytes of the last second, unless the server did not read, and refuse a body that is too slow."""
        self._deadline = None
        # The client waits for us, not we for it.
        if self.cycle.waiting_for_100_continue or self.flow.read_paused:
            self._arrivals.clear()
        else:
            self._arrivals.append(self._arrived_bytes)
        self._arrived_bytes = 0
        if len(self._arrivals) == RATE_WINDOW_S:
            least = self._limits.body_bytes_per_s
            if self.cycle.response_complete:
                self.transport.close()
                return
            if sum(self._arrivals) < least * RATE_WINDOW_S:
                message = f"the body came with less than {least} bytes a second for {RATE_WINDOW_S} s"
                self._refuse(HttpProblem(408, "request_timeout", message))
                return
        self._set_deadline(1.0, self._look_at_rate)

    def _is_busy(self) -> bool:
        """Return whether a complete request is being served."""
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _set_deadline(self, delay_s: float, then: Callable[[], None]) -> None:
        self._deadline = self.loop.call_later(delay_s, then)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # Refusals

    def _refuse_head(self) -> None:
        message = f"the head of the request is over {self._limits.head_bytes} bytes; send fewer or shorter headers"
        self._refuse(HttpProblem(431, "headers_too_large", message))

    def _refuse(self, problem: HttpProblem) -> None:
        """Respond with the problem unless another response is under way, drop further input, and close."""
        self._refused = True
        self._clear_deadline()
        self._hold_head(0)
        # Frees what the parser holds of the refused request.
        self.parser = None
        if self._in_body:
            if self.cycle.response_started or self.pipeline:
                self.transport.close()
                return
            # The application that reads the body learns that its client has gone; its own response is dropped.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        elif self._is_busy():  # with an earlier request, whose response is the last one
            self.cycle.keep_alive = False
            return
        request_id = f"{getrandbits(64):016x}"
        body = problem.body(request_id)
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-request-id: %s\r\nconnection: close\r\n\r\n%s"
            % (problem.status, HTTPStatus(problem.status).phrase.encode(), len(body), request_id.encode(), body)
        )
        # Half a close: the client can still send, and reads the response. After a whole close the kernel would answer
        # its next bytes with a reset, which may destroy the response before it is read.
        self.transport.write_eof()
        self._set_deadline(LINGER_S, self.transport.abort)


class AnswersWhenCancelled:
    """The application as uvicorn runs it, which cancels the requests that outlast the time to drain.

    One without a response yet gets a 503: it waited for something else than a tool or a provider, which end by then.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError:
            if started or scope["type"] != "http":
                raise
            await draining().response("")(scope, receive, send)
