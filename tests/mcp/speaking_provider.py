"""A provider for clients of MCP: results, reports and waits of every kind."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import BaseModel, Field

from toolplug import CallContext, FunctionProvider, ToolError, ToolResult, tool

PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


class Place(BaseModel):
    """Where something is."""

    x: int
    y: int = 0


class Speaking(FunctionProvider):
    """Answers, fails, reports and waits as it is told."""

    async def start(self, site: object) -> None:
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()

    @tool(read_only=True, idempotent=True)
    async def say(self, text: Annotated[str, Field(max_length=1000)]) -> str:
        """Say it again."""
        return text

    @tool(destructive=True)
    async def move(self, x: int) -> Place:
        """Move to a place."""
        return Place(x=x)

    @tool
    async def draw(self) -> ToolResult:
        """Draw a picture."""
        return ToolResult(output="a picture", parts=(PICTURE, {"type": "dance", "steps": 3}))

    @tool
    async def numbers(self) -> list[int]:
        """Give some numbers."""
        return [1, 2]

    @tool
    async def fails(self) -> str:
        """Fail on purpose."""
        raise ToolError("not today", retry_after_s=2.5, metadata={"reason": "weather"})

    @tool
    async def panics(self) -> str:
        """Fail by accident."""
        raise RuntimeError("secret")

    @tool
    async def counts(self, upto: int, context: CallContext) -> int:
        """Report each number, and one that falls."""
        for number in range(1, upto + 1):
            context.report(number, upto, f"number {number}")
            context.report(0)
        return upto

    @tool
    async def waits(self) -> str:
        """Wait for a cancellation."""
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "never"

    @tool
    async def seen_waiting(self) -> str:
        """Return when the other one waits."""
        await self.began.wait()
        return "waits"

    @tool
    async def seen_cancelled(self) -> str:
        """Return when the other one was cancelled."""
        await self.cancelled.wait()
        return "cancelled"

    @tool
    async def whoami(self, context: CallContext) -> str:
        """Say who calls, and where."""
        return f"{context.principal.subject}@{context.principal.tenant} {context.agent} {context.session}"
