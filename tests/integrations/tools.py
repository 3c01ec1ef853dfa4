"""The tools that every adapter is tried with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import Field

from toolplug import CallContext, FunctionProvider, FunctionRegistry, ToolError, ToolResult, tool

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


class Zoo(FunctionProvider):
    """Tools with what is hard for adapters: optional and oddly named arguments, errors, images, a caller."""

    together = 0
    most_together = 0

    @tool(read_only=True)
    async def feed(self, animal: Annotated[str, Field(max_length=20)], times: int = 1) -> str:
        """Feed an animal."""
        Zoo.together += 1
        Zoo.most_together = max(Zoo.most_together, Zoo.together)
        await asyncio.sleep(0)
        Zoo.together -= 1
        return f"{animal} fed {times}"

    @tool
    async def odd(self, config: str, callbacks: str, run_manager: str) -> dict[str, str]:
        """Take arguments with names that frameworks use."""
        return {"config": config, "callbacks": callbacks, "run_manager": run_manager}

    @tool
    async def fail(self) -> None:
        """Fail in the tool's own words."""
        raise ToolError("the gate is closed")

    @tool
    async def picture(self) -> ToolResult:
        """Return an image."""
        return ToolResult(output="a pixel", parts=({"type": "image", "data": PIXEL, "mimeType": "image/png"},))

    @tool
    async def who(self, context: CallContext) -> str:
        """Return the caller."""
        return context.principal.subject


@asynccontextmanager
async def zoo() -> AsyncIterator[FunctionRegistry]:
    """The registry of the tools, open."""
    async with FunctionRegistry([Zoo]) as registry:
        yield registry
