"""The benchmarks' tools as toolplug providers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import tools
from toolplug import CallContext, FunctionProvider, ToolCall, ToolDefinition, tool
from toolplug.apart.frames import NOTE, RESULT, Peer, encode_frame

SEARCH_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 400},
        "filters": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "field": {"type": "string"},
                    "values": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
                },
                "required": ["field", "values"],
                "additionalProperties": False,
            },
        },
        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        "offset": {"type": "integer", "minimum": 0},
        "language": {"enum": ["en", "de", "fr"]},
        "highlight": {"type": "boolean"},
    },
    "required": ["query", "limit"],
    "additionalProperties": False,
}


ECHO_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


class Trivial(FunctionProvider):
    """Methods as an author writes them."""

    @tool
    async def echo(self, text: str) -> str:
        """Return the text."""
        return text

    @tool
    async def echo_later(self, text: str) -> str:
        """Return the text in the loop's next turn."""
        await asyncio.sleep(0)
        return text

    @tool
    def echo_blocking(self, text: str) -> str:
        """Return the text, from a thread."""
        return text


class Tardy(FunctionProvider):
    """Tools that do not end by their deadline."""

    @tool
    async def sleep(self) -> None:
        """Sleep, and go when asked to."""
        await asyncio.sleep(3600)

    @tool
    async def cling(self) -> None:
        """Sleep on for a moment when asked to go."""
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)


class Many(FunctionProvider):
    """`count` tools named `<prefix>_0` and onward behind one `execute`; their schemas differ, as real ones do."""

    def __init__(self, count: int, prefix: str = "tool", schema: Mapping[str, object] = SEARCH_SCHEMA) -> None:
        super().__init__()
        self.count = count
        self.prefix = prefix
        self.schema = schema

    def tools(self) -> Sequence[ToolDefinition]:
        """The definitions, made anew."""
        return [
            ToolDefinition(
                name=f"{self.prefix}_{index}",
                description=f"Search the documents of collection {index}.",
                parameters={**self.schema, "title": f"Search {self.prefix} {index}"},
            )
            for index in range(self.count)
        ]

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Return ten hits."""
        return tools.HITS


class Disturber(FunctionProvider):
    """Disturbs whoever it can, for ever; it is meant for a process of its own."""

    @tool
    async def loop(self) -> str:
        """Hold this process's event loop."""
        while True:
            pass

    @tool
    async def eat(self) -> str:
        """Fill 300 MB of memory again and again."""
        while True:
            taken = [bytearray(b"x" * 1_000_000) for _ in range(300)]
            taken.clear()
            await asyncio.sleep(0)

    @tool
    async def flood(self) -> str:
        """Write log lines and results of no call as fast as the host's socket takes them."""
        socket: Any = next(each for each in gc.get_objects() if isinstance(each, Peer))
        line = encode_frame(NOTE, {"note": "log", "level": 20, "text": "x" * 1_000})
        result = encode_frame(RESULT, {"id": 10**9, "status": "success"}, b"x" * 100_000)
        while True:
            socket.transport.write(line * 50 + result * 5)
            while socket.unread > 1_000_000:  # noqa: ASYNC110  there is no event of it
                await asyncio.sleep(0)
