"""Real servers, started by the tests: one node, and clusters."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from pathlib import Path

import pytest
from tests.byte_proxy import Proxy
from tests.redis_server import RedisServer

from toolplug_redis.store import RedisStore

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
    """One server of a cluster of three, which share the slots."""
    return form_cluster([session_servers("--cluster-enabled", "yes") for _ in range(3)])[0]


def form_cluster(servers: Sequence[RedisServer], *, replicas: int = 0) -> Sequence[RedisServer]:
    """Make a cluster of these servers, so many of which are replicas of each primary."""
    addresses = [f"127.0.0.1:{server.port}" for server in servers]
    form = ["redis-cli", "--cluster", "create", *addresses, "--cluster-yes", "--cluster-replicas", str(replicas)]
    done = subprocess.run(form, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    for server in servers:
        with server.client as client:
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                time.sleep(0.05)
    return servers


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
