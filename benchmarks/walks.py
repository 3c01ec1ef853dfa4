"""How far a line of work walks: in how many files of toolplug a function runs, once everything is imported."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType

import toolplug
from benchmarks.application import Application
from benchmarks.applications import mcp_listed
from benchmarks.frame import Batch, Row, Unit
from benchmarks.providers import Trivial
from toolplug import Principal, open_host
from toolplug.http import create_app

FILES = Unit(name="files", scale=1)
OPERATOR = Principal(subject="olga", tenant="t1", scopes=frozenset({"admin", "operator"}))
_ROOT = str(Path(toolplug.__file__).parent)


@contextmanager
def watch_files() -> Generator[set[str]]:
    """Note each file of toolplug in which a function is called, here and in threads that begin meanwhile."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_ROOT):
            found.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@asynccontextmanager
async def called_over_http() -> AsyncGenerator[Batch]:
    """Call a tool by `POST /v1/tool-calls`, without a socket."""
    body = json.dumps({"id": "1", "name": "echo", "arguments": {"text": "x"}}).encode()
    async with open_host({"store": "memory://"}, providers={"trivial": Trivial()}) as host:
        app = Application(create_app(host))

        async def batch(n: int) -> float:
            count = 0
            for _ in range(n):
                await app.ask("POST", "/v1/tool-calls", body)
                with watch_files() as found:
                    status, answer = await app.ask("POST", "/v1/tool-calls", body)
                assert (status, json.loads(answer)["status"]) == (200, "success")
                count += len(found)
            return count

        yield batch


@asynccontextmanager
async def mcp_server_listed() -> AsyncGenerator[Batch]:
    """Discover an MCP server, after another one, until its tools are in the catalog."""
    entry = {"command": sys.executable, "args": ["-S", mcp_listed.__file__, "3"], "discovery_timeout": "60s"}
    names = ("first", "second")
    settings = {
        "store": "memory://",
        "mcp_servers": dict.fromkeys(names, entry),
        "toolsets": {name: {"prefix": name, "from": f"mcp:{name}"} for name in names},
    }

    async def batch(n: int) -> float:
        count = 0
        for _ in range(n):
            async with open_host(settings) as host:
                discover = host.servers.loaded.discover
                await discover("first", by=OPERATOR, wait_s=60.0, request_id="")
                host.catalog_page(OPERATOR)
                with watch_files() as found:
                    await discover("second", by=OPERATOR, wait_s=60.0, request_id="")
                    page = host.catalog_page(OPERATOR)
                assert page.body.count(b'"name":"second.') == 3
                count += len(found)
        return count

    yield batch


ROWS = (
    Row(
        name="files that run in a tool call over HTTP",
        ours=called_over_http,
        hold=25,
        aim=22,
        unit=FILES,
        pairs=3,
        batch_s=0,
    ),
    Row(
        name="files that run from the start of an MCP server until its tools are listed",
        ours=mcp_server_listed,
        hold=62,
        aim=40,
        unit=FILES,
        pairs=3,
        batch_s=0,
    ),
)
