"""The benchmarks' tools as toolplug providers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from benchmarks import tools
from toolplug import CallContext, FunctionProvider, ToolCall, ToolDefinition, tool

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
