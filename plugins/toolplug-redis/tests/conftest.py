"""Real servers, started by the tests: one node, and one that is a cluster by itself."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest
from tests.byte_proxy import Proxy
from tests.redis_server import RedisServer

from toolplug_redis.store import RedisStore

SLOTS = range(16384)


StartServer = Callable[..., RedisServer]


@pytest.fixture(scope="session")
def session_servers() -> Generator[StartServer]:
    """Start servers that end with the tests."""
    with tempfile.TemporaryDirectory(prefix="toolplug-redis-") as folder:
        yield from _starting(Path(folder))


@pytest.fixture
def start_server(tmp_path: Path) -> Generator[StartServer]:
    """Start servers that end with the test."""
    yield from _starting(tmp_path)


def _starting(folder: Path) -> Generator[StartServer]:
    servers: list[RedisServer] = []

    def start(*options: str, port: int = 0) -> RedisServer:
        own = folder / f"server{len(servers)}"
        own.mkdir()
        server = RedisServer(own, *options, port=port)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(scope="session")
def node(session_servers: StartServer) -> RedisServer:
    """One server."""
    return session_servers()


@pytest.fixture(scope="session")
def cluster(session_servers: StartServer) -> RedisServer:
    """One server that is a cluster with all slots."""
    server = session_servers("--cluster-enabled", "yes")
    with server.client as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", SLOTS[0], SLOTS[-1])
        while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            time.sleep(0.05)
    return server


@pytest.fixture
def proxy() -> Proxy:
    """A proxy in front of a server."""
    return Proxy()


@pytest.fixture
async def store(node: RedisServer) -> AsyncGenerator[RedisStore]:
    async with RedisStore(node.address) as store:
        yield store


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
