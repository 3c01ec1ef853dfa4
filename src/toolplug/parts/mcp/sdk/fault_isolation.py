"""An HTTP transport that returns a valid answer for each request to the SDK, and filters a server's event streams.

An exception of one request would end the SDK's transport, and with it all other requests. So each failure becomes a
JSON-RPC error of that request, under a code that the connection reads back.
"""

from __future__ import annotations

import asyncio
import logging
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from time import monotonic
from typing import NamedTuple, cast

import httpx2
import orjson
from mcp.client.auth import OAuthFlowError, OAuthTokenError
from mcp_types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from toolplug.catalog.text import pluralize
from toolplug.net.checked_transport import AnswerRefused
from toolplug.parts.mcp.client.child_process import RateLimitedLog
from toolplug.parts.mcp.client.connection_strategies import Restarts
from toolplug.parts.mcp.limits import MAX_MESSAGE_BYTES
from toolplug.parts.mcp.sdk.line_streams import (
    BAD_ANSWER,
    FAILED,
    UNAUTHORIZED,
    UNREADABLE,
    is_meant_as_answer,
    is_readable,
    is_wanted,
)
from toolplug.runtime.tasks import BackgroundTasks

AFTERWARDS_S = 5.0


class CancelGrace:
    """The time limit of one request: none, and five seconds after it was cancelled.

    A server of the older era is notified of a cancellation by another request, and may never end the cancelled one.
    """

    def __init__(self, afterwards_s: float = AFTERWARDS_S) -> None:
        self._afterwards_s = afterwards_s
        self._until: float | None = None
        self._waiting: asyncio.Timeout | None = None

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Limit the wait for a part of the answer. Raises `TimeoutError`."""
        waiting = asyncio.timeout_at(self._until)
        async with waiting:
            self._waiting = waiting
            try:
                yield
            finally:
                self._waiting = None

    def end_soon(self) -> None:
        """Limit the wait for the rest of the answer to a few seconds: the request was cancelled."""
        self._until = asyncio.get_running_loop().time() + self._afterwards_s
        if self._waiting is not None:
            self._waiting.reschedule(self._until)


MAX_GARBAGE = 1_000
_AT_ONCE = 64
_BETWEEN_REQUESTS_S = 0.01
"""Answering a request of the server is a request of ours; it may not ask faster than it takes those."""

_RETRY_MS = (1_000, 30_000)


class MessageEvents(httpx2.AsyncByteStream):
    """An event stream reduced to messages of at most 6 MiB; a stream that exceeds a limit ends with an error event.

    The response stream of a request also ends so if its answer cannot be read, or if it breaks off before the answer
    and cannot be resumed. The server's `retry` time is limited to between one and thirty seconds.
    """

    def __init__(
        self,
        request: httpx2.Request,
        response: httpx2.Response,
        log: RateLimitedLog,
        patience: CancelGrace,
        closed: Callable[[], None],
    ) -> None:
        self._response = response
        self._log = log
        self._patience = patience
        self._closed = closed
        response.request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        garbage, settled = 0, self._response.request.method != "POST"
        try:
            async for event in self._events():
                settled = settled or bool(event.id)
                message = _message(event)
                only_id = event.event == "message" and not event.data and bool(event.id)
                if message is not None or only_id:
                    garbage = 0
                    settled = settled or isinstance(message, JSONRPCResponse | JSONRPCError)
                    if isinstance(message, JSONRPCRequest):
                        await asyncio.sleep(_BETWEEN_REQUESTS_S)
                    if message is None or self._passes(message, event):
                        yield _encode(event)
                    continue
                garbage += 1
                self._log_garbage(event)
                if not settled and event.event == "message" and is_meant_as_answer(event.data.encode()):
                    yield _last(BAD_ANSWER, UNREADABLE)
                    return
                if garbage > MAX_GARBAGE:
                    yield _last(BAD_ANSWER, f"it sent more than {MAX_GARBAGE:,} events in a row that are no messages")
                    return
                if garbage % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        except httpx2.SSEError:
            yield _last(BAD_ANSWER, f"it sent an event of more than {MAX_MESSAGE_BYTES:,} bytes")
            return
        except TimeoutError:
            return
        except httpx2.TransportError:
            if settled:
                raise
        if not settled:
            yield _last(FAILED, "its answer broke off")

    async def aclose(self) -> None:
        """Close the server's stream."""
        self._closed()
        await self._response.aclose()

    def _passes(self, message: JSONRPCMessage, event: httpx2.ServerSentEvent) -> bool:
        if not is_readable(message):
            self._log_garbage(event)
            return False
        return is_wanted(message)

    def _log_garbage(self, event: httpx2.ServerSentEvent) -> None:
        size = pluralize(len(event.data), "byte")
        self._log.write(logging.WARNING, "a server sent an event that is no message", size)

    async def _events(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        events = aiter(httpx2.EventSource(self._response, max_event_size=MAX_MESSAGE_BYTES))
        while True:
            async with self._patience.waiting():
                event = await anext(events, None)
            if event is None:
                return
            yield event


def refusal(code: int, message: str) -> bytes:
    """Return the body of a JSON-RPC error without an id; the request that reads it adds its own."""
    return orjson.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})


def _message(event: httpx2.ServerSentEvent) -> JSONRPCMessage | None:
    if event.event != "message" or not event.data:
        return None
    try:
        return jsonrpc_message_adapter.validate_json(event.data, by_name=False)
    except ValidationError:
        return None


def _encode(event: httpx2.ServerSentEvent) -> bytes:
    lines = [f"id: {event.id}"] if event.id else []
    if event.retry is not None:
        least, most = _RETRY_MS
        lines.append(f"retry: {min(max(event.retry, least), most)}")
    lines.extend(f"data: {line}" for line in event.data.split("\n"))
    return ("\n".join(lines) + "\n\n").encode()


def _last(code: int, reason: str) -> bytes:
    return b"data: " + refusal(code, reason) + b"\n\n"


# The stream on which a server of the older era tells its news: asked for again, in time, whenever it is lost.
#
# The SDK gives it up after two errors, however far apart, and does not know what it missed.

_CHANGED = b"data: " + orjson.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}) + b"\n\n"

Ask = Callable[[httpx2.Request], Awaitable[httpx2.Response]]
"""Gives an answer whose stream yields one message at a time; raises `httpx2.TransportError`."""


def is_for_news(request: httpx2.Request) -> bool:
    """Return whether the request asks for the notification stream, and not for the rest of an answer."""
    return request.method == "GET" and "last-event-id" not in request.headers


class NewsStream:
    """Reopens the notification stream whenever it ends, at growing intervals if streams do not last.

    After a gap the first message says that the tools have changed, as nothing else can have been missed.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._restarts = Restarts()
        self._heard = False

    async def open_first(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response of the first stream. Raises `httpx2.ConnectError` if the server cannot be reached."""
        while True:
            await asyncio.sleep(self._restarts.pause_s())
            try:
                response = await self._ask(request)
            except httpx2.ConnectError:
                raise
            except httpx2.TransportError:
                self._restarts.record_failure()
                continue
            if response.status_code != HTTPStatus.TOO_MANY_REQUESTS and not response.is_server_error:
                break
            await response.aclose()
            self._restarts.record_failure()
        missed, self._heard = self._heard, self._heard or response.status_code == HTTPStatus.OK
        messages = cast("httpx2.AsyncByteStream", response.stream)  # an asynchronous client's answers have these only
        news = _News(messages, self._restarts, missed=missed)
        return httpx2.Response(response.status_code, headers=response.headers, stream=news)


class _News(httpx2.AsyncByteStream):
    """One notification stream, which ends without an error when it breaks off."""

    def __init__(self, messages: httpx2.AsyncByteStream, restarts: Restarts, *, missed: bool) -> None:
        self._messages = messages
        self._restarts = restarts
        self._missed = missed
        self._since = monotonic()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._missed:
            yield _CHANGED
        try:
            async for message in self._messages:
                # Without its id, so that the SDK opens a new stream instead of resuming this one.
                yield message.partition(b"\n")[2] if message.startswith(b"id:") else message
        except httpx2.TransportError:
            return

    async def aclose(self) -> None:
        """Close the server's stream."""
        self._restarts.record_end(monotonic() - self._since)
        await self._messages.aclose()


_NOTIFY_S = 5.0
_END_S = 1.0
_PACE_S = 1.0
_MAX_TELLING = 100
_SESSION = "mcp-session-id"
_EVENTS = "text/event-stream"
_CANCELLED = "notifications/cancelled"
_INITIALIZED = "notifications/initialized"


class _Posted(NamedTuple):
    """The kind of a posted message: `request` is the id of a request, `cancelled` the id that it cancels, else None.

    `first` is the notification that must reach the server before anything else.
    """

    request: RequestId | None
    cancelled: RequestId | None
    first: bool


class FaultIsolatingTransport(httpx2.AsyncBaseTransport):
    """Sends requests to `server`, a transport that it does not close. `gone` is called if the session is lost."""

    def __init__(self, server: httpx2.AsyncBaseTransport, log: RateLimitedLog, gone: Callable[[str], None]) -> None:
        self._server = server
        self._log = log
        self._gone = gone
        self._next_stream = 0.0
        self._asked: dict[RequestId, CancelGrace] = {}
        self._telling = BackgroundTasks()
        self._news = NewsStream(self._stream)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return an answer to each POST; a GET (the notification stream) and a DELETE may raise."""
        if request.method != "POST":
            return await self._other(request)
        posted = _read_post(await request.aread())
        if posted.request is None:
            return await self._notify(request, posted)
        patience = self._asked[posted.request] = CancelGrace()
        response = None
        try:
            async with patience.waiting():
                response = await self._server.handle_async_request(request)
            if _is_stream(response):
                return self._filter(request, response, patience, posted.request)
            return await self._readable(request, response, posted.request)
        except Exception as error:  # noqa: BLE001  what escapes here ends all that is asked of this server
            return self._make_failure(error)
        finally:
            if response is None or not _is_stream(response):
                self._asked.pop(posted.request, None)

    async def aclose(self) -> None:
        """Drop notifications that are not sent yet."""
        await self._telling.cancel()

    async def _other(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            async with asyncio.timeout(_END_S):
                response = await self._server.handle_async_request(request)
                stream = cast("httpx2.AsyncByteStream", response.stream)  # as of every asynchronous client
                return httpx2.Response(response.status_code, headers=response.headers, stream=stream)
        if is_for_news(request):
            return await self._news.open_first(request)
        now = asyncio.get_running_loop().time()
        wait_s, self._next_stream = max(0.0, self._next_stream - now), max(now, self._next_stream) + _PACE_S
        await asyncio.sleep(wait_s)
        return await self._stream(request)

    async def _stream(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._server.handle_async_request(request)
        except httpx2.ConnectError as error:
            self._gone(str(error))
            raise
        return self._filter(request, response, CancelGrace(), None)

    async def _notify(self, request: httpx2.Request, posted: _Posted) -> httpx2.Response:
        """Answer a notification before it is sent if its order does not matter, as the SDK sends one at a time."""
        if posted.cancelled is not None and (patience := self._asked.get(posted.cancelled)) is not None:
            patience.end_soon()
        if posted.first:
            await self._tell(request)
        elif len(self._telling) < _MAX_TELLING:
            self._telling.start(self._tell(request), "toolplug-mcp-telling")
        return httpx2.Response(202)

    async def _tell(self, request: httpx2.Request) -> None:
        try:
            async with asyncio.timeout(_NOTIFY_S):
                response = await self._server.handle_async_request(request)
                await response.aclose()
        except Exception as error:  # noqa: BLE001  as above
            self._log.write(logging.WARNING, "a server took no notification", type(error).__name__)

    async def _readable(self, request: httpx2.Request, response: httpx2.Response, asked: RequestId) -> httpx2.Response:
        kind = _kind(response)
        if kind == _EVENTS:
            await response.aclose()
            return self._read_refusal(request, response, None)
        body = (await response.aread()).removeprefix(BOM_UTF8)
        if response.has_redirect_location:
            return httpx2.Response(response.status_code, headers=response.headers)
        if kind == "application/json" and (answer := _answer(body)) is not None:
            if response.status_code >= 400 and isinstance(answer, JSONRPCError):
                return self._read_refusal(request, response, body)
            if response.status_code == 200 and answer.id == asked:
                return httpx2.Response(200, headers=_keep_headers(response), content=body)
        if response.status_code >= 400:
            return self._read_refusal(request, response, None)
        return _error(BAD_ANSWER, "it sent something that is no answer to the request")

    def _read_refusal(self, request: httpx2.Request, response: httpx2.Response, body: bytes | None) -> httpx2.Response:
        status = response.status_code
        words = f"HTTP {status} {response.reason_phrase}".strip()
        if status == 401:
            return _error(UNAUTHORIZED, f"it refuses our credentials ({words})")
        if status == 404 and _SESSION in request.headers:
            self._gone("it no longer knows our session")
            return _error(FAILED, "it no longer knows our session")
        if body is not None:
            return httpx2.Response(status, headers={"content-type": "application/json"}, content=body)
        if status in (502, 503, 504):
            return _error(FAILED, f"it answered with {words}")
        return _error(METHOD_NOT_FOUND if status == 404 else INTERNAL_ERROR, f"it answered with {words}")

    def _make_failure(self, error: Exception) -> httpx2.Response:
        if isinstance(error, AnswerRefused):
            return _error(BAD_ANSWER, str(error))
        if isinstance(error, OAuthTokenError):
            return _error(FAILED, f"it refuses our credentials ({error})")
        if isinstance(error, OAuthFlowError):  # a wrong issuer among others
            return _error(FAILED, f"our credentials were not sent: {error}; check its url and oauth.issuer")
        if isinstance(error, TimeoutError):
            return _error(FAILED, "it did not end what was cancelled")
        if isinstance(error, httpx2.ConnectError):
            self._gone(str(error))
        return _error(FAILED, str(error) or type(error).__name__)

    def _filter(
        self, request: httpx2.Request, response: httpx2.Response, patience: CancelGrace, asked: RequestId | None
    ) -> httpx2.Response:
        def forget_request() -> None:
            if asked is not None:
                self._asked.pop(asked, None)

        events = MessageEvents(request, response, self._log, patience, forget_request)
        return httpx2.Response(response.status_code, headers=response.headers, stream=events)


def _read_post(body: bytes) -> _Posted:
    message = cast("dict[str, object]", orjson.loads(body))  # what the SDK has written
    method = message.get("method")
    if method is not None and "id" in message:
        return _Posted(cast("RequestId", message["id"]), None, first=False)
    about = cast("dict[str, RequestId]", message.get("params", {})).get("requestId") if method == _CANCELLED else None
    return _Posted(None, about, first=method == _INITIALIZED)


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_stream(response: httpx2.Response) -> bool:
    return response.status_code == 200 and _kind(response) == _EVENTS


def _answer(body: bytes) -> JSONRPCResponse | JSONRPCError | None:
    try:
        message = jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError:
        return None
    return message if isinstance(message, JSONRPCResponse | JSONRPCError) else None


def _error(code: int, message: str) -> httpx2.Response:
    return httpx2.Response(400, headers={"content-type": "application/json"}, content=refusal(code, message))


def _keep_headers(response: httpx2.Response) -> dict[str, str]:
    kept = {"content-type": "application/json"}
    if _SESSION in response.headers:
        kept[_SESSION] = response.headers[_SESSION]
    return kept
