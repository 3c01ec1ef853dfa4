"""A server made with the SDK, as a script over pipes: of both eras, or with `handshake` of the older one only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Annotated, TextIO, cast

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.stdio import stdio_server
from mcp_types import METHOD_NOT_FOUND
from pydantic import Field
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

PROBE = "server/discover"
Region = Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]


def made() -> MCPServer:
    """The server: `add`, `region` with an argument in a header, `wait`, `ends`, `grow`, and `traced`."""
    server = MCPServer("good")
    ended: list[str] = []
    news = anyio.Event()

    @server.tool()
    def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    @server.tool()
    def region(where: Region) -> str:
        return where

    @server.tool()
    async def wait(context: Context) -> str:
        await context.report_progress(1, 2, "half")
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("wait")
            news.set()
        return "never"

    @server.tool()
    async def ends() -> list[str]:
        with anyio.fail_after(20):
            await news.wait()
        return ended

    @server.tool()
    async def grow(context: Context) -> str:
        server.add_tool(add, name="grown")
        await context.notify_tools_changed()
        await context.session.send_tool_list_changed()
        return "grown"

    @server.tool()
    async def traced(context: Context) -> dict[str, object]:
        asked = context.request_context
        headers = {} if asked.request is None else cast("Request", asked.request).headers
        named = ("traceparent", "tracestate")
        return {
            "meta": {name: (asked.meta or {}).get(name) for name in named},
            "headers": {name: headers.get(name) for name in named},
        }

    return server


def refusal(id: object) -> str:  # noqa: A002  the protocol's word
    error = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": error})


class HandshakeOnly:
    """An application of the SDK that knows nothing of the newer era."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        first = await receive()
        message = json.loads(first["body"])

        async def again() -> dict[str, object]:
            nonlocal first
            given, first = first, cast("dict[str, object]", None)
            return dict(given) if given else dict(await receive())

        if message.get("method") != PROBE:
            await self._app(scope, again, send)
            return
        body = refusal(message["id"]).encode()
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})


async def unprobed(answers: TextIO) -> AsyncIterator[str]:
    async for line in anyio.wrap_file(sys.stdin):
        message = json.loads(line)
        if message.get("method") == PROBE:
            print(refusal(message["id"]), file=answers, flush=True)
        else:
            yield line


async def handshake_only(server: MCPServer) -> None:
    lowlevel = server._lowlevel_server
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")  # the SDK sends what is printed to the standard error stream
    async with stdio_server(stdin=unprobed(answers)) as (read, write):  # pyright: ignore[reportArgumentType]
        await lowlevel.run(read, write, lowlevel.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1:] == ["handshake"]:
        anyio.run(handshake_only, made())
    else:
        made().run("stdio")
