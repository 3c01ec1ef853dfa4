"""JSON-RPC messages as lines of a child process, as the streams of the SDK's dispatcher; filters and error codes.

The dispatcher reads a message after it has handled the last one, and the pipe holds the rest, so that nothing queues up
in memory.

An invalid line is counted and rarely logged; too many end the reading. An invalid answer ends the request that it
names, or all pending requests if it names none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self, cast

import anyio
import mcp_types as types
import orjson
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from mcp_types.methods import SERVER_NOTIFICATIONS, parse_server_notification
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from toolplug.catalog.exact_json import as_object, load_json
from toolplug.catalog.text import pluralize
from toolplug.errors import InvalidJson
from toolplug.parts.mcp.client.child_process import Child, LineTooLong
from toolplug.parts.mcp.limits import MAX_MESSAGE_BYTES
from toolplug.parts.mcp.serving.server_endpoint import LISTEN, PARSE_ERROR

# Codes of JSON-RPC errors that stand for what happened on our own side of the wire.
#
# A server that sends one of them only chooses what its own refusal is called.

BAD_ANSWER: Final = -32090
FAILED: Final = -32091
UNAUTHORIZED: Final = -32092

UNREADABLE: Final = "its answer cannot be read"

_CLOSED = "Connection closed"


def is_closed(error: MCPError) -> bool:
    """Return whether the SDK reports a closed connection. Servers use the same code for requests that they refuse."""
    return error.code == CONNECTION_CLOSED and error.message == _CLOSED


def is_meant_as_answer(text: bytes) -> bool:
    """Return whether an invalid message is meant as an answer, and not a line that the program has printed.

    That is an object with a result or an error, and a line that is not text.
    """
    if text.lstrip().startswith(b"{"):
        return b'"method"' not in text and (b'"result"' in text or b'"error"' in text)
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


_WANTED = frozenset(
    (
        "notifications/cancelled",
        "notifications/progress",
        "notifications/subscriptions/acknowledged",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
    )
)


def is_wanted(message: JSONRPCMessage) -> bool:
    """Return False for a notification that toolplug does not handle."""
    return not isinstance(message, JSONRPCNotification) or message.method in _WANTED


def is_readable(message: JSONRPCMessage) -> bool:
    """Return False for a notification whose parameters the SDK cannot read: it would log a traceback for each.

    Servers send a null `progressToken`, among others, for as long as a call runs.
    """
    if not isinstance(message, JSONRPCNotification) or not is_wanted(message):
        return True
    try:
        for version in (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION):
            if (message.method, version) in SERVER_NOTIFICATIONS:
                parse_server_notification(message.method, version, message.params)
    except ValidationError:
        return False
    return True


ANSWERED_WITHIN_S = 30.0
"""How long requests may still run after the end of the input: as long as a call may take by default."""

_CANCELLED = "notifications/cancelled"


@contextmanager
def own_stdin() -> Generator[anyio.AsyncFile[str]]:
    """Take standard input for the protocol; until the block ends, providers and child processes read an empty one."""
    descriptor, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        # Left open: the thread that waits for a line cannot be interrupted, and would read from what is opened next.
        yield anyio.wrap_file(open(descriptor, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115
    finally:
        os.dup2(descriptor, 0)


class LineAnswers:
    """The stream of messages to the client; it knows which requests have no answer yet. Implements `WriteStream`."""

    def __init__(self, messages: WriteStream[SessionMessage]) -> None:
        self._messages = messages
        self._open: set[object] = set()
        self._asked: set[object] = set()
        self._changed = asyncio.Event()

    def note(self, message: Mapping[str, object]) -> None:
        """Note a message of the client; the SDK answers none that is no JSON-RPC."""
        method, message_id = message.get("method"), message.get("id")
        if message.get("jsonrpc") != "2.0" or not isinstance(message_id, str | int | None):
            return
        if not isinstance(method, str | None) or not isinstance(message.get("params", {}), dict | None):
            return
        if method == _CANCELLED:
            self._end(self._open, as_object(message.get("params")).get("requestId"))
        elif method is None:
            self._end(self._asked, message_id)
        elif message_id is not None and method != LISTEN:  # which goes on until the client leaves
            self._open.add(message_id)

    async def wait(self) -> None:
        """Wait until every request is answered, but for those that wait for the client, or for 30 s."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                while len(self._open) > len(self._asked):
                    self._changed.clear()
                    await self._changed.wait()

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            self._asked.add(message.id)
        try:
            await self._messages.send(item)
        finally:
            if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                self._end(self._open, message.id)
            self._changed.set()

    async def aclose(self) -> None:
        await self._messages.aclose()

    async def __aenter__(self) -> Self:
        await self._messages.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._messages.__aexit__(exc_type, exc_val, exc_tb)

    def _end(self, ids: set[object], message_id: object) -> None:
        with suppress(TypeError):  # an id of a type that is none
            ids.discard(message_id)
        self._changed.set()


class ExactLines:
    """The lines of standard input that are JSON; any other line is answered with a parse error.

    The SDK itself ignores such lines, and takes the last of two equal keys.
    """

    def __init__(self, lines: anyio.AsyncFile[str]) -> None:
        self._lines = lines
        self.answers: LineAnswers | None = None
        """Where the answers go; set before the first line is read."""

    async def __aiter__(self) -> AsyncGenerator[str]:
        answers = self.answers
        assert answers is not None, "set before the first line is read"
        async for line in self._lines:
            try:
                message = load_json(line.encode())
            except InvalidJson as error:
                if line.strip():
                    told = types.ErrorData(code=PARSE_ERROR, message=f"Parse error: {error}")
                    await answers.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=told)))
                continue
            if isinstance(message, dict):
                answers.note(cast("Mapping[str, object]", message))
            yield line
        await answers.wait()


MAX_GARBAGE = 1_000
"""Lines in a row that are no messages, after which a server is given up."""

_IDS = re.compile(rb'"id"\s*:\s*"?([^",}\s]{1,100})')
_TOO_DEEP = "its answer is nested too deeply"


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
            if not is_readable(message):
                self._log_garbage(line)
                continue
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
            self._log_garbage(line)

    def _log_garbage(self, line: bytes) -> None:
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
