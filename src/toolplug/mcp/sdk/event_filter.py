"""Filtering a server's event stream: messages pass, the rest is counted, a cancelled request waits only briefly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import orjson
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from toolplug.catalog.text import counted
from toolplug.mcp.child_output import PacedLog
from toolplug.mcp.sdk.messages import BAD_ANSWER, FAILED, is_wanted
from toolplug.mcp.sdk.pinned_transport import MAX_ANSWER_BYTES

AFTERWARDS_S = 5.0


class Patience:
    """One request's: without end, and five seconds from when it was cancelled on.

    A server of the older era is told of a cancellation in another request, and may never end the one that it is about.
    """

    def __init__(self, afterwards_s: float = AFTERWARDS_S) -> None:
        self._afterwards_s = afterwards_s
        self._until: float | None = None
        self._waiting: asyncio.Timeout | None = None

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Wait for a part of the answer. Raises `TimeoutError`."""
        waiting = asyncio.timeout_at(self._until)
        async with waiting:
            self._waiting = waiting
            try:
                yield
            finally:
                self._waiting = None

    def end_soon(self) -> None:
        """Nobody wants the answer any more."""
        self._until = asyncio.get_running_loop().time() + self._afterwards_s
        if self._waiting is not None:
            self._waiting.reschedule(self._until)


MAX_GARBAGE = 1_000
_AT_ONCE = 64
_BETWEEN_REQUESTS_S = 0.01
"""Answering a request of the server is a request of ours; it may not ask faster than it takes those."""

_RETRY_MS = (1_000, 30_000)


class MessageEvents(httpx2.AsyncByteStream):
    """An event stream with messages only, none over 4 MiB; one that goes too far ends with an error as its last event.

    So does one that a request was answered with and that ends without the answer, where it cannot be taken up again.
    The time that a server asks us to wait before we come again is held between one and thirty seconds.
    """

    def __init__(
        self,
        request: httpx2.Request,
        response: httpx2.Response,
        log: PacedLog,
        patience: Patience,
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
                if message is not None or _is_mark(event):
                    garbage = 0
                    settled = settled or isinstance(message, JSONRPCResponse | JSONRPCError)
                    if isinstance(message, JSONRPCRequest):
                        await asyncio.sleep(_BETWEEN_REQUESTS_S)
                    if message is None or is_wanted(message):
                        yield _encoded(event)
                    continue
                garbage += 1
                size = counted(len(event.data), "byte")
                self._log.write(logging.WARNING, "a server sent an event that is no message", size)
                if garbage > MAX_GARBAGE:
                    yield _last(BAD_ANSWER, f"it sent more than {MAX_GARBAGE:,} events in a row that are no messages")
                    return
                if garbage % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        except httpx2.SSEError:
            yield _last(BAD_ANSWER, f"it sent an event of more than {MAX_ANSWER_BYTES:,} bytes")
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

    async def _events(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        events = aiter(httpx2.EventSource(self._response, max_event_size=MAX_ANSWER_BYTES))
        while True:
            async with self._patience.waiting():
                event = await anext(events, None)
            if event is None:
                return
            yield event


def refusal(code: int, message: str) -> bytes:
    """An error for whichever request reads it."""
    return orjson.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})


def _message(event: httpx2.ServerSentEvent) -> JSONRPCMessage | None:
    if event.event != "message" or not event.data:
        return None
    try:
        return jsonrpc_message_adapter.validate_json(event.data, by_name=False)
    except ValidationError:
        return None


def _is_mark(event: httpx2.ServerSentEvent) -> bool:
    """Whether the event only says where a stream could be taken up again."""
    return event.event == "message" and not event.data and bool(event.id)


def _encoded(event: httpx2.ServerSentEvent) -> bytes:
    lines = [f"id: {event.id}"] if event.id else []
    if event.retry is not None:
        least, most = _RETRY_MS
        lines.append(f"retry: {min(max(event.retry, least), most)}")
    lines.extend(f"data: {line}" for line in event.data.split("\n"))
    return ("\n".join(lines) + "\n\n").encode()


def _last(code: int, reason: str) -> bytes:
    return b"data: " + refusal(code, reason) + b"\n\n"
