"""Real servers, started by the tests: one node, and one that is a cluster by itself."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError
from redis.retry import Retry

from toolplug_redis.address import Address
from toolplug_redis.store import RedisStore

PATIENCE_S = 20.0
SLOTS = range(16384)


class RedisServer:
    """A `redis-server` on a free port of the loopback interface, whose files are in a folder."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        self.folder = folder
        self.options = options
        self.port = port or _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        """Its address, with keys of their own."""
        return Address(host="127.0.0.1", port=self.port, prefix=f"test-{uuid4().hex}")

    @property
    def client(self) -> Redis:
        """A plain client for the test's own questions."""
        return Redis(port=self.port, retry=Retry(NoBackoff(), 0))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        with (self.folder / "redis.log").open("ab") as log:
            command += ["--save", "", *self.options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "redis.log").read_text()
            assert time.monotonic() < give_up_at
            time.sleep(0.01)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with suppress(RedisError), self.client as client:
            with suppress(AuthenticationError):
                client.execute_command("PING")
            return True
        return False


def _free_port() -> int:
    # A cluster node also listens on its port + 10,000.
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
            if port < 55_000:
                return port


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
