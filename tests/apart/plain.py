"""A provider with one tool, to measure and to break."""

from __future__ import annotations

from toolplug import FunctionProvider, tool


class Plain(FunctionProvider):
    """One tool."""

    @tool(read_only=True)
    async def one(self, text: str) -> str:
        "Return the text."
        return text
