"""Standard input and output of an MCP server: lines that are exact JSON, and an end that waits for the answers.

At the end of its input the SDK cancels the requests that still run, so that `toolplug serve --stdio < requests` would
lose the answers to the last ones.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self, cast

import anyio
import mcp_types as types
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage

from toolplug.catalog.exact_json import as_object, load_json
from toolplug.errors import InvalidJson
from toolplug.parts.mcp.serving.server_endpoint import LISTEN, PARSE_ERROR

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
