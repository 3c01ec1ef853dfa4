"""MCP servers as sources: reading the catalog, adding a server that is slow, and starting beside broken ones.

CPU time of the host's process for what asks nobody, time on the wall for the rest.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from benchmarks.applications import mcp_listed
from benchmarks.frame import MILLISECONDS, Batch, Row
from toolplug import Host, Principal, open_host
from toolplug.parts.mcp.server_records import ServerRecord

SERVERS = 100
TOOLS = 100
BESIDE = 50
BROKEN = 5

OPERATOR = Principal(subject="olga", tenant="t1", scopes=frozenset({"admin", "operator"}))


def entry(mode: object) -> Mapping[str, object]:
    """A server that lists so many tools, hangs or dies."""
    return {"command": sys.executable, "args": ["-S", mcp_listed.__file__, str(mode)], "discovery_timeout": "60s"}


def settings(folder: Path) -> Mapping[str, object]:
    """Every server, each in a toolset of its own."""
    names = [f"s{index}" for index in range(SERVERS)]
    return {
        "store": f"sqlite:///{folder}/state.db",
        "mcp_servers": {name: entry(TOOLS) for name in names},
        "toolsets": {name: {"prefix": name, "from": f"mcp:{name}"} for name in names},
    }


@asynccontextmanager
async def discovered() -> AsyncGenerator[Mapping[str, object]]:
    """The settings of a host whose servers have all been discovered, by another host on the same store."""
    with TemporaryDirectory() as folder:
        made = settings(Path(folder))
        async with open_host(made) as host:
            for view in host.servers.servers("t1"):
                await host.servers.loaded.discover(view.id, by=OPERATOR, wait_s=120.0, request_id="")
            assert all(len(view.record.tools) == TOOLS for view in host.servers.servers("t1"))
        yield made


@asynccontextmanager
async def read_first() -> AsyncGenerator[Batch]:
    """Read the catalog of a host that has just been entered; it starts nothing."""
    async with discovered() as made:

        async def batch(n: int) -> float:
            took = 0.0
            for _ in range(n):
                async with open_host(made, serving=False) as host:
                    begun = process_time()
                    page = host.catalog_page(OPERATOR)
                    took += process_time() - begun
                    assert page.body.count(b'"callable":true') == SERVERS * TOOLS
            return took

        yield batch


@asynccontextmanager
async def read_unchanged() -> AsyncGenerator[Batch]:
    """Read the same catalog again."""
    async with discovered() as made, open_host(made, serving=False) as host:
        known = host.catalog_page(OPERATOR)

        async def batch(n: int) -> float:
            begun = process_time()
            for _ in range(n):
                assert host.catalog_page(OPERATOR) is known
            return process_time() - begun

        yield batch


@asynccontextmanager
async def added_slow() -> AsyncGenerator[Batch]:
    """Add a server that takes connections and never answers."""
    with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        made = {"store": f"sqlite:///{folder}/state.db", "egress": {"allow": ["loopback"]}}
        async with open_host(made) as host:
            number = count()

            async def batch(n: int) -> float:
                took = 0.0
                for _ in range(n):
                    name = f"slow-{next(number)}"
                    begun = perf_counter()
                    view = await host.servers.loaded.add(ServerRecord(id=name, url=url), by=OPERATOR, request_id="")
                    took += perf_counter() - begun
                    assert view.record.status == "discovering"
                    await host.servers.loaded.remove(name, by=OPERATOR, request_id="")
                return took

            yield batch


@asynccontextmanager
async def ready_beside_broken() -> AsyncGenerator[Batch]:
    """Enter a host some of whose servers hang or die, and call a tool of one that does neither, which is not timed."""
    modes: list[object] = [*["hang"] * BROKEN, *["die"] * BROKEN, *[1] * (BESIDE - 2 * BROKEN)]
    servers = {f"s{index}": entry(mode) for index, mode in enumerate(modes)}

    async def batch(n: int) -> float:
        took = 0.0
        for _ in range(n):
            begun = perf_counter()
            async with open_host({"store": "memory://", "mcp_servers": servers}) as host:
                took += perf_counter() - begun
                await _healthy_known(host)
        return took

    yield batch


async def _healthy_known(host: Host) -> None:
    """Wait until the tools of every server are known that has any, whatever the others do."""
    healthy = [view.id for view in host.servers.servers("t1")][2 * BROKEN :]
    for name in healthy:
        view = await host.servers.loaded.discover(name, by=OPERATOR, wait_s=60.0, request_id="")
        assert view.record.status == "success"


ROWS = (
    Row(
        name="catalog of 10,000 cached tools over 100 servers, first read",
        ours=read_first,
        hold=50,
        aim=20,
        unit=MILLISECONDS,
        pairs=7,
        batch_s=0,
    ),
    Row(
        name="the same, unchanged",
        ours=read_unchanged,
        hold=1,
        aim=0.5,
        unit=MILLISECONDS,
        pairs=31,
        batch_s=0.05,
    ),
    Row(
        name="adding a server that never answers: answer after",
        ours=added_slow,
        hold=50,
        aim=10,
        unit=MILLISECONDS,
        pairs=31,
        batch_s=0,
    ),
    Row(
        name="50 servers of which 5 hang and 5 die: host ready after",
        ours=ready_beside_broken,
        hold=1000,
        aim=500,
        unit=MILLISECONDS,
        pairs=5,
        batch_s=0,
    ),
)
