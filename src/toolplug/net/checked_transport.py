"""HTTP to untrusted servers: to checked addresses only, with uncompressed responses of limited size."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable
from typing import Protocol, cast

import httpcore2
import httpx2

from toolplug.net.egress import Egress, EgressRefused, Resolve, reachable, resolve_host
from toolplug.runtime.threads import in_own_thread

# Answers are read whole before they are looked at, so this is memory for each request that runs.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
CONNECT_S = 5.0
PORTS = {"http": 80, "https": 443}

# Sockets count against the limit of files of the process, 1,024 on many systems, which the host's own callers need.
_MAX_CONNECTIONS = 256
_KEEPALIVE: tuple[tuple[int, int, int], ...] = ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),)
"""Tells of a peer that went without a word, on streams that may be silent for hours."""

_SocketOptions = Iterable[httpcore2.SOCKET_OPTION] | None


class AnswerRefused(httpx2.TransportError):
    """A response is compressed or exceeds the size limit."""


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were resolved and checked before; host name, port and TLS stay those of the URL.

    The hosts and ports in `trusted` are from the operator's file and are not checked.
    """

    def __init__(self, egress: Egress, resolve: Resolve, trusted: Collection[tuple[str, int]]) -> None:
        self._egress = egress
        self._resolve = resolve
        self._trusted = trusted
        # httpcore2 declares a second class of this name for an environment without anyio
        self._network = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: _SocketOptions = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Try the host's addresses in turn. Raises `httpcore2.ConnectError`, also if an address is not permitted."""
        failure: Exception | None = None
        # No "happy eyeballs": two attempts at once would double the connections that one request may open.
        for address in await self._addresses(host, port):
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise httpcore2.ConnectError(f"cannot connect to {host}:{port}") from failure

    async def _addresses(self, host: str, port: int) -> Iterable[str]:
        try:
            if (host, port) in self._trusted:
                return await self._resolve(host, port)
            return await reachable(self._egress, host, port, self._resolve)
        except EgressRefused as error:
            raise httpcore2.ConnectError(str(error)) from None
        except OSError:
            raise httpcore2.ConnectError(f"{host!r} has no address") from None


class PinnedTransport(httpx2.AsyncBaseTransport):
    """A transport that ignores the environment (proxies, `.netrc`) and limits the size of responses.

    Event streams are passed on as they arrive, other responses are read whole; both must be uncompressed.
    """

    def __init__(
        self,
        network: CheckedNetwork,
        tls: ssl.SSLContext | None,
        *,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        compressed: bool = False,
    ) -> None:
        self._max_answer_bytes = max_answer_bytes
        self._compressed = compressed
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=_MAX_CONNECTIONS,
            keepalive_expiry=30.0,
            network_backend=network,
            socket_options=_KEEPALIVE,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises `httpx2.ConnectError`, `AnswerRefused` and other `httpx2.TransportError`s."""
        # A kilobyte of compressed zeros is a megabyte: without compression the size that is read is the size that was
        # sent.
        request.headers["Accept-Encoding"] = "identity"
        sent = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=cast("AsyncIterable[bytes]", request.stream),  # an asynchronous client's requests have these only
            extensions=request.extensions,
        )
        try:
            answer = await self._pool.handle_async_request(sent)
        # Kept apart from the errors below: nothing was sent yet, so that a caller may try again without doing something
        # twice.
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise httpx2.ConnectError(str(error) or "the connection timed out") from error
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise httpx2.ReadError(str(error) or type(error).__name__) from error
        body = _Body(cast("_Stream", answer.stream))  # as above
        head = httpx2.Headers(answer.headers)
        try:
            if self._compressed:
                head.pop("content-encoding", None)  # else httpx2 would expand it, without a limit
            else:
                _refuse_encoded(head)
            media_type = head.get("content-type", "").partition(";")[0].strip().lower()
            stream = (
                body
                if media_type == "text/event-stream"
                else httpx2.ByteStream(await _whole(body, self._max_answer_bytes))
            )
        # Also for a cancelled caller: a response that is not closed keeps its connection out of the pool.
        except BaseException:
            await body.aclose()
            raise
        return httpx2.Response(answer.status, headers=head, stream=stream)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()


async def checked_transport(
    egress: Egress,
    *,
    trusted: Iterable[str] = (),
    max_answer_bytes: int = MAX_ANSWER_BYTES,
    compressed: bool = False,
) -> httpx2.AsyncBaseTransport:
    """Return a transport for `httpx2` that connects to addresses which the operator permits, and to no other.

    Each name is resolved, checked and connected to by the address that was checked, for each new connection, so that a
    later answer of the name server has no effect. An address that `egress` does not permit raises
    `httpx2.ConnectError`. Answers are uncompressed and read whole, but for event streams; one over `max_answer_bytes`
    raises `httpx2.TransportError`. Proxies and credentials of the environment are not used, redirects not followed.

    egress: `site.egress`, the operator's `egress.allow`.
    trusted: http and https URLs that the operator wrote; their hosts and ports are not checked.
    compressed: answers that are compressed, although none was asked for, are given as they are and without
    `Content-Encoding`, instead of refused: expand them with a limit.

    The caller closes it. Needs `httpx2` and `httpcore2`.
    """
    urls = [httpx2.URL(text) for text in trusted]
    places = {(url.raw_host.decode("ascii"), url.port or PORTS.get(url.scheme, 0)) for url in urls}
    tls = await in_own_thread(httpx2.create_ssl_context)  # reads a tenth of a second of certificates
    return PinnedTransport(
        CheckedNetwork(egress, resolve_host, places), tls, max_answer_bytes=max_answer_bytes, compressed=compressed
    )


class _Stream(Protocol):
    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield part
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise httpx2.ReadError(str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def _refuse_encoded(head: httpx2.Headers) -> None:
    encoding = head.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerRefused("the answer is compressed though we asked for none that is")


async def _whole(body: _Body, max_bytes: int) -> bytes:
    read = bytearray()
    async for part in body:
        read += part
        if len(read) > max_bytes:
            raise AnswerRefused(f"the answer is larger than {max_bytes:,} bytes")
    await body.aclose()
    return bytes(read)
