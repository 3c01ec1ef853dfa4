"""Real HTTP servers in the loop of the test, so that tests and tools can wait for one another with events."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp
from uvicorn import Config, Server


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Serve the application on a free port, without lifespan; gives its address, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = Config(
            app, http="httptools", lifespan="off", log_level="critical", access_log=False, timeout_graceful_shutdown=5
        )
        config.load()
        server = Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listening])
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            await server.shutdown(sockets=[listening])
