"""MCP servers of every manner for the tests of a host that uses them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.http.served import served

from toolplug import open_host
from toolplug.http import create_app


@contextmanager
def sample_server() -> Iterator[str]:
    """A real server with the tools of the sample provider, whose package must be there; gives its address."""
    host = open_host({"store": "memory://", "providers": {"sample": {"enabled": True}}}, environ={})
    with served(host, create_app(host)) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def silent_server() -> Iterator[str]:
    """One that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"


DEAD_SERVER = "http://127.0.0.1:1/mcp"
"""An address at which nobody listens."""
