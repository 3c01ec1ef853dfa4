"""The events of a server's stream that are messages; what is none costs its event and a count."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import httpx2
import orjson
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from toolplug.mcp.paced_log import PacedLog
from toolplug.mcp.sdk.failure_codes import BAD_ANSWER
from toolplug.mcp.sdk.pinned_transport import MAX_ANSWER_BYTES

MAX_GARBAGE = 1_000
_AT_ONCE = 64
_RETRY_MS = (1_000, 30_000)


class MessageEvents(httpx2.AsyncByteStream):
    """An event stream with messages only, none over 4 MiB; one that goes too far ends with an error as its last event.

    The time that a server asks us to wait before we come again is held between one and thirty seconds.
    """

    def __init__(self, request: httpx2.Request, response: httpx2.Response, log: PacedLog) -> None:
        self._response = response
        self._log = log
        response.request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        garbage = 0
        try:
            async for event in httpx2.EventSource(self._response, max_event_size=MAX_ANSWER_BYTES):
                if _is_message(event):
                    garbage = 0
                    yield _encoded(event)
                    continue
                garbage += 1
                self._log.write(
                    logging.WARNING, "a server sent an event that is no message", f"{len(event.data)} bytes"
                )
                if garbage > MAX_GARBAGE:
                    yield _last(f"it sent more than {MAX_GARBAGE:,} events in a row that are no messages")
                    return
                if garbage % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        except httpx2.SSEError:
            yield _last(f"it sent an event of more than {MAX_ANSWER_BYTES:,} bytes")

    async def aclose(self) -> None:
        """Close the server's stream."""
        await self._response.aclose()


def refusal(code: int, message: str) -> bytes:
    """An error for whichever request reads it."""
    return orjson.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})


def _is_message(event: httpx2.ServerSentEvent) -> bool:
    if event.event != "message":
        return False
    if not event.data:
        return bool(event.id)
    try:
        jsonrpc_message_adapter.validate_json(event.data, by_name=False)
    except ValidationError:
        return False
    return True


def _encoded(event: httpx2.ServerSentEvent) -> bytes:
    lines = [f"id: {event.id}"] if event.id else []
    if event.retry is not None:
        least, most = _RETRY_MS
        lines.append(f"retry: {min(max(event.retry, least), most)}")
    lines.extend(f"data: {line}" for line in event.data.split("\n"))
    return ("\n".join(lines) + "\n\n").encode()


def _last(reason: str) -> bytes:
    return b"data: " + refusal(BAD_ANSWER, reason) + b"\n\n"
