"""MCP servers of every manner for the tests of a host that uses them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.http.served import served

from toolplug import open_host
from toolplug.http import create_app

CHANGING = """
import sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

said = Path(sys.argv[1]).read_text()
server = MCPServer("changing")

@server.tool(description=said)
def fetch(page: str) -> str:
    return page

@server.tool(description="Say it again.")
def echo(text: str) -> str:
    return text

server.run()
"""


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


def dead_server() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"


def changing_server(folder: Path, says: str) -> Mapping[str, object]:
    """The entry of a server that is a command; its tool `fetch` is described by the file `says` of the folder."""
    (folder / "changing.py").write_text(CHANGING)
    (folder / "says").write_text(says)
    return {"command": sys.executable, "args": [str(folder / "changing.py"), str(folder / "says")]}
