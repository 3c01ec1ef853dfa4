"""A real server on a free port of this machine, in a thread of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Literal

from starlette.routing import Router
from starlette.types import ASGIApp
from uvicorn import Config, Server

from toolplug import Host

Parser = Literal["h11", "httptools"]


@contextmanager
def served(
    host: Host, app: ASGIApp, *, http: Parser = "httptools", address: str = "127.0.0.1", port: int = 0
) -> Iterator[int]:
    """Serve the application with its host as lifespan; gives the port (0: a free one), until the block ends."""
    whole = Router(default=app, lifespan=host.lifespan)  # a Mount answers a path with a line feed itself
    with serving_apart(whole, http=http, address=address, port=port, patience_s=5) as found:
        yield found


@contextmanager
def serving_apart(
    app: ASGIApp, *, http: Parser = "httptools", address: str = "127.0.0.1", port: int = 0, patience_s: int = 1
) -> Iterator[int]:
    """Serve any application in a thread and a loop of its own; gives the port."""
    with socket.create_server((address, port)) as listening:
        config = Config(app, http=http, log_level="critical", access_log=False, timeout_graceful_shutdown=patience_s)
        server = Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
