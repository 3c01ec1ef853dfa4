"""A server of 2025-11-25 on standard input and output that asks for something during its calls, made with the SDK."""

from __future__ import annotations

import warnings

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel, Field
from tests.mcp.client.good import handshake_only

server = MCPServer("asking")
released = anyio.Event()


class Booking(BaseModel):
    """The form; its description has a character that changes the direction of text."""

    seats: int = Field(description="How many\u202e seats?")


@server.tool()
async def book(context: Context) -> str:
    """Ask how many seats to book."""
    answer = await context.elicit("How many\u202e seats?", Booking)
    return f"{answer.action}: {answer.data.seats}" if answer.action == "accept" else answer.action


server.add_tool(book, name="hurry")


@server.tool()
async def visit(context: Context) -> str:
    """Ask to open a page."""
    return (await context.elicit_url("Sign in", "https://example.com/", "one")).action


@server.tool()
async def think(context: Context) -> str:
    """Ask for the words of a model."""
    message = SamplingMessage(role="user", content=TextContent(text="Hello"))
    return str(await context.session.create_message([message], max_tokens=10))


@server.tool()
async def hold(context: Context) -> str:
    """Run until `release` is called."""
    await context.report_progress(1)
    await released.wait()
    return "held"


@server.tool()
async def release() -> str:
    """End `hold`."""
    released.set()
    return "released"


@server.tool()
async def offered(context: Context) -> str:
    """Say what the client says that it can do."""
    capabilities = context.session.client_capabilities
    assert capabilities is not None
    return capabilities.model_dump_json(exclude_none=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # sampling is deprecated
    anyio.run(handshake_only, server)
