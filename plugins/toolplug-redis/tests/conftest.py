"""Real servers, started by the tests: one node, and one that is a cluster by itself."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.redis_server import RedisServer

from toolplug_redis.store import RedisStore

SLOTS = range(16384)


class Proxy:
    """Passes bytes on; it can delay replies, and end connections in the middle of one."""

    def __init__(self) -> None:
        self.cutting = False
        self.cuts = 0
        self.longest_delay_s = 0.0
        self.port = 0
        self._numbers = random.Random(17)

    @asynccontextmanager
    async def to(self, port: int) -> AsyncGenerator[Proxy]:
        """Listen on `self.port` for a server."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer, replies=True))

        listening = await asyncio.start_server(connected, "127.0.0.1")
        self.port = listening.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listening.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if replies:
                    await asyncio.sleep(self._numbers.uniform(0, self.longest_delay_s))
                    if self.cutting and len(data) > 3 and self._numbers.random() < 0.1:
                        self.cuts += 1
                        writer.write(data[: len(data) // 2])
                        await writer.drain()
                        break
                writer.write(data)
                await writer.drain()
        writer.close()


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
