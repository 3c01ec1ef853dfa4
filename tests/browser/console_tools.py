"""Tools for the tests of the console: slow ones, failing ones, and one whose texts are hostile."""

from __future__ import annotations

import asyncio

from toolplug import CallContext, FunctionProvider, ToolDefinition, ToolError, ToolResult, tool

HOSTILE = '<img src=x onerror="window.broken=1"><script>window.broken=1</script> \u202eevil'
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Tools(FunctionProvider):
    """Tools that end in several ways."""

    @tool(read_only=True)
    async def count(self, seconds: float, context: CallContext) -> str:
        """Count, and report progress."""
        for step in (1, 2):
            context.report(step, 2, f"step {step}")
            await asyncio.sleep(seconds)
        return "counted"

    @tool
    async def crash(self) -> str:
        """Crash."""
        raise ValueError("a secret text")

    @tool(destructive=True)
    async def erase(self, everything: bool) -> str:
        """Erase notes."""
        return "erased"

    @tool(description=HOSTILE)
    async def hostile(self) -> str:
        raise ToolError(HOSTILE)

    @tool
    async def large(self) -> str:
        """Return ten megabytes."""
        return "x" * 10_000_000

    @tool
    async def picture(self) -> ToolResult:
        """Return an image."""
        return ToolResult(output="a pixel", parts=({"type": "image", "data": PIXEL, "mimeType": "image/png"},))


class Many(FunctionProvider):
    """Ten thousand tools."""

    def tools(self) -> list[ToolDefinition]:
        return [ToolDefinition(name=f"tool_{number:05}", description=f"Number {number}.") for number in range(10_000)]
