"""The tools of `benchmarks.bare` as toolplug providers."""

from __future__ import annotations

from collections.abc import Sequence

from toolplug import CallContext, FunctionProvider, ToolCall, ToolDefinition, tool

from benchmarks import bare

ECHO = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SEARCH = {
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


class Trivial(FunctionProvider):
    """Methods as an author writes them: one at once, one that suspends, one for threads."""

    @tool
    async def echo(self, text: str) -> str:
        """Return the text."""
        return text

    @tool
    async def echo_later(self, text: str) -> str:
        """Return the text in the loop's next turn."""
        return await bare.echo_later(text)

    @tool
    def echo_blocking(self, text: str) -> str:
        """Return the text; in a thread."""
        return text


class Many(FunctionProvider):
    """As many tools as its subclass says, with schemas of their own, behind one `execute`."""

    count = 1

    def tools(self) -> Sequence[ToolDefinition]:
        """`tool_0` and onward; the schemas differ, as those of real tools do."""
        return [
            ToolDefinition(
                name=f"tool_{index}",
                description=f"Return the text; number {index} of its kind.",
                parameters={**SEARCH, "title": f"Search {index}"},
            )
            for index in range(self.count)
        ]

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Return ten hits."""
        return bare.HITS
