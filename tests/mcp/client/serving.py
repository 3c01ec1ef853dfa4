"""An application on a free port of this machine."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp
from tests.mcp.client.hostile_http import sane
from uvicorn import Config, Server


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[int]:
    """Serve in the loop of the test until the block ends; gives the port."""
    server = Server(Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            while not server.started:
                await asyncio.sleep(0)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await task


@asynccontextmanager
async def dying() -> AsyncIterator[int]:
    """A server that answers sanely until it is asked to call a tool, and then goes without a word; gives the port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            message = json.loads(await reader.readexactly(length))
            if message["method"] == "tools/call":
                break
            body = json.dumps(sane(message)).encode() if "id" in message else b""
            status = b"200 OK" if body else b"202 Accepted"
            writer.write(b"HTTP/1.1 %s\r\ncontent-type: application/json\r\n" % status)
            writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
        server.close()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
