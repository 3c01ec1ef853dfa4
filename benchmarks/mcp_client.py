"""Calls of an MCP server's tool: CPU time of the process that calls, beside the SDK's client in the same era."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path

from mcp.client.stdio import StdioServerParameters

from benchmarks.calling import repeated
from benchmarks.frame import Batch, Row, timed
from benchmarks.process import started
from mcp import Client
from toolplug import Principal, ToolCall, open_host

ARGUMENTS = {"name": "World"}
OPERATOR = Principal(subject="olga", tenant="t1", scopes=frozenset({"admin", "operator"}))

_FOUND_S = 30.0
_PIPES = ("-m", "benchmarks.applications.mcp_pipes")
_HERE = str(Path(__file__).parent.parent)

Entry = Mapping[str, object]
"""A server as an entry of `mcp_servers:`."""


@contextmanager
def pipes() -> Generator[Entry]:
    """A server that whoever connects starts."""
    yield {"command": sys.executable, "args": list(_PIPES), "cwd": _HERE}


@contextmanager
def http() -> Generator[Entry]:
    """A server that runs on the servers' processor."""
    with started("benchmarks.server", "mcp_bare") as served:
        yield {"url": f"http://127.0.0.1:{served.port}/mcp"}


Reached = Callable[[], AbstractContextManager[Entry]]


@asynccontextmanager
async def through_a_host(reached: Reached) -> AsyncGenerator[Batch]:
    """The tool of an agent's toolset, with every default knob on."""
    with reached() as entry:
        settings = {
            "store": "memory://",
            "mcp_servers": {"bench": entry},
            "toolsets": {"bench": {"prefix": "bench", "from": "mcp:bench"}},
            "agents": {"caller": {"toolsets": ["bench"]}},
        }
        async with open_host(settings, environ={}) as host:
            await host.servers.loaded.discover("bench", by=OPERATOR, wait_s=_FOUND_S, request_id="")
            executor = host.executor_for(OPERATOR, agent="caller")
            yield await repeated(executor, ToolCall(id="c1", name="bench.hello", arguments=ARGUMENTS))


@asynccontextmanager
async def through_the_sdk(reached: Reached) -> AsyncGenerator[Batch]:
    """MCP Python SDK, "Clients": `Client.call_tool`."""
    with reached() as entry:
        async with Client(_known_to_the_sdk(entry)) as client:
            await client.call_tool("hello", ARGUMENTS)

            async def run(n: int) -> None:
                for _ in repeat(None, n):
                    await client.call_tool("hello", ARGUMENTS)

            yield timed(run)


def _known_to_the_sdk(entry: Entry) -> StdioServerParameters | str:
    if "url" in entry:
        return str(entry["url"])
    return StdioServerParameters(command=sys.executable, args=list(_PIPES), cwd=_HERE)


def _row(name: str, reached: Reached) -> Row:
    return Row(
        name=name,
        ours=partial(through_a_host, reached),
        other=partial(through_the_sdk, reached),
        against="MCP SDK client",
        hold=1.3,
        aim=1.1,
        pairs=31,
        batch_s=0.05,
    )


ROWS = (_row("call of an MCP tool over stdio", pipes), _row("call of an MCP tool over HTTP", http))
