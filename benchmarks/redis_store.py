"""A commit on Redis, against the bare client's SET of the same bytes; the server is a process of its own."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from subprocess import DEVNULL
from time import perf_counter

import redis
from redis.asyncio import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from benchmarks.frame import Batch, Row
from benchmarks.process import Served, running
from toolplug_redis.address import Address
from toolplug_redis.store import RedisStore

VALUE, EVENT = b"v" * 500, b"e" * 200


@contextmanager
def server() -> Generator[Served]:
    """Run a server without files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with running(command, stdout=DEVNULL) as process:
            retry = Retry(ConstantBackoff(0.02), 500)
            with redis.Redis(port=port, retry=retry, retry_on_error=[redis.ConnectionError]) as client:
                client.execute_command("PING")
            yield Served(pid=process.pid, port=port)


@asynccontextmanager
async def commits() -> AsyncGenerator[Batch]:
    """Commit a record of 500 bytes with an event of 200."""
    with server() as served:
        async with RedisStore(Address(host="127.0.0.1", port=served.port)) as store:

            async def batch(n: int) -> float:
                begun = perf_counter()
                for _ in range(n):
                    await store.commit("session/one", VALUE, events=[EVENT])
                return perf_counter() - begun

            yield batch


@asynccontextmanager
async def sets() -> AsyncGenerator[Batch]:
    """Set a key to 700 bytes."""
    with server() as served:
        async with Redis(port=served.port) as client:

            async def batch(n: int) -> float:
                begun = perf_counter()
                for _ in range(n):
                    await client.set("key", VALUE + EVENT)
                return perf_counter() - begun

            yield batch


ROWS = (
    Row(
        name="commit on Redis: a record and an event",
        ours=commits,
        other=sets,
        against="bare redis-py: SET",
        hold=3.0,
        aim=1.5,
        batch_s=0.02,
        pairs=101,
    ),
)
