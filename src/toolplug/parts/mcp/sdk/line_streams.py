"""JSON-RPC messages as lines of a child process, as the streams of the SDK's dispatcher.

The dispatcher reads a message after it has handled the last one, and the pipe holds the rest, so that nothing queues up
in memory. An invalid line is counted and rarely logged; too many end the reading. An invalid answer ends the request
that it names, or all pending requests if it names none.
"""

from __future__ import annotations

import asyncio
import logging
import re
from codecs import BOM_UTF8
from collections import deque
from types import TracebackType
from typing import Self

import anyio
import orjson
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from toolplug.catalog.text import pluralize
from toolplug.parts.mcp.client.child_output import LineTooLong
from toolplug.parts.mcp.client.child_process import Child
from toolplug.parts.mcp.limits import MAX_MESSAGE_BYTES
from toolplug.parts.mcp.sdk.messages import BAD_ANSWER, UNREADABLE, is_meant_as_answer, is_wanted

MAX_GARBAGE = 1_000
"""Lines in a row that are no messages, after which a server is given up."""

_IDS = re.compile(rb'"id"\s*:\s*"?([^",}\s]{1,100})')
_TOO_DEEP = "its answer is nested too deeply"
_CANCELLED = "notifications/cancelled"


Waiting = dict[str, RequestId]
"""The requests that a child has not answered yet, by the text of their ids: an answer may have `"3"` for 3."""


class _ChildStream:
    async def aclose(self) -> None:
        """Do nothing: the owner of the child ends it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class MessagesIn(_ChildStream):
    """The messages from a child. `ended_because` says why the reading was stopped; None if the child ended."""

    def __init__(self, child: Child, waiting: Waiting) -> None:
        self.ended_because: str | None = None
        self._waiting = waiting
        self._errors: deque[JSONRPCError] = deque()
        self._child = child
        self._garbage = 0

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises `anyio.EndOfStream`."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while self.ended_because is None:
            if self._errors:
                return SessionMessage(self._errors.popleft())
            if self._child.lines.ready:
                await asyncio.sleep(0)  # what the message before has begun goes on first, and so does everybody else
            line = await self._line()
            if line is None:
                break
            message = _message(line.removeprefix(BOM_UTF8))  # which some runtimes on Windows write first
            if message is None:
                self._count_garbage(line)
                self._end_unreadable(line)
                continue
            self._garbage = 0
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._waiting.pop(str(message.id), None)
            if not is_wanted(message):
                continue
            if isinstance(message, JSONRPCRequest):
                await self._child.writable()
            return SessionMessage(message)
        raise StopAsyncIteration

    async def _line(self) -> bytes | None:
        try:
            return await self._child.lines.next()
        except LineTooLong:
            self.ended_because = f"it sent a line of more than {MAX_MESSAGE_BYTES:,} bytes"
        except ConnectionError:
            pass
        return None

    def _end_unreadable(self, line: bytes) -> None:
        """Answer the request that the child has tried to answer with an error."""
        if not is_meant_as_answer(line):
            return
        named = [text for found in _IDS.finditer(line) if (text := found[1].decode(errors="replace")) in self._waiting]
        for text in dict.fromkeys(named[:1] or self._waiting):
            error = ErrorData(code=BAD_ANSWER, message=UNREADABLE)
            self._errors.append(JSONRPCError(jsonrpc="2.0", id=self._waiting.pop(text), error=error))

    def _count_garbage(self, line: bytes) -> None:
        self._garbage += 1
        if self._garbage > MAX_GARBAGE:
            self.ended_because = f"it sent more than {MAX_GARBAGE:,} lines in a row that are no messages"
        elif line.strip():
            what = f"{self._child.called!r} sent a line that is no message"
            self._child.log.write(logging.WARNING, what, pluralize(len(line), "byte"))


class MessagesOut(_ChildStream):
    """The messages to a child; the ids of requests are added to the pending ones."""

    def __init__(self, child: Child, waiting: Waiting) -> None:
        self._child = child
        self._waiting = waiting

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. Raises `anyio.BrokenResourceError` if the child no longer reads."""
        message = item.message
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if isinstance(message, JSONRPCRequest):
            self._waiting[str(message.id)] = message.id
        try:
            if isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
                self._waiting.pop(str((message.params or {}).get("requestId")), None)
                self._child.write_at_once(line)
            else:
                await self._child.write(line)
        except (OSError, RuntimeError):
            raise anyio.BrokenResourceError from None


def _message(line: bytes) -> JSONRPCMessage | None:
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _deep_message(line)


def _deep_message(line: bytes) -> JSONRPCMessage | None:
    """Return a message nested deeper than pydantic accepts (200): a list of tools stays, any other answer is an error.

    So one tool with such a schema does not hide the others.
    """
    try:
        message = jsonrpc_message_adapter.validate_python(orjson.loads(line), by_name=False)
    except (orjson.JSONDecodeError, ValidationError):
        return None
    if not isinstance(message, JSONRPCResponse):
        return None
    if "tools" in message.result:
        return message
    return JSONRPCError(jsonrpc="2.0", id=message.id, error=ErrorData(code=BAD_ANSWER, message=_TOO_DEEP))
