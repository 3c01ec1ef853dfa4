"""FastMCP's server with its tasks: `serve_fastmcp_tasks.py PORT`; its tools must run as tasks."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

server = FastMCP("peer")
server.add_extension(TasksExtension())
MUST = TaskConfig(mode="required")


@server.tool(task=MUST)
async def wait_for(file: str) -> str:
    """Wait for a file."""
    while not Path(file).exists():
        await asyncio.sleep(0.02)
    return "it is there"


@server.tool(task=MUST)
async def fail_late() -> str:
    """Fail after a moment."""
    await asyncio.sleep(0.2)
    raise ToolError("it cannot be done")


@server.tool(task=MUST)
async def book(ctx: Context) -> str | InputRequiredResult:
    """Ask for a number of seats, and book them."""
    answer = (ctx.input_responses or {}).get("seats")
    if isinstance(answer, ElicitResult):
        return f"{answer.action}: {(answer.content or {}).get('seats')}"
    form = {"type": "object", "properties": {"seats": {"type": "integer"}}}
    question = ElicitRequestFormParams(message="How many seats?", requested_schema=form)
    return InputRequiredResult(input_requests={"seats": ElicitRequest(params=question)})


@server.tool
async def now() -> str:
    """Answer at once."""
    return "at once"


if __name__ == "__main__":
    server.run(transport="http", port=int(sys.argv[1]), show_banner=False)
