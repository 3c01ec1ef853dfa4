"""A Redis server of the tests: its files in a folder, at a free port."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError
from redis.retry import Retry

from toolplug_redis.address import Address

PATIENCE_S = 60.0


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


@contextmanager
def redis(*options: str) -> Iterator[RedisServer]:
    """An empty server, killed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="toolplug-redis-") as folder:
        server = RedisServer(Path(folder), *options)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _free_port() -> int:
    # A cluster node also listens on its port + 10,000.
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
            if port < 55_000:
                return port
