"""A commit on Redis, against the bare client's SET of the same bytes; the server is a process of its own."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from time import perf_counter

from redis.asyncio import Redis
from redis.exceptions import RedisError

from benchmarks.frame import Batch, Row
from toolplug_redis.address import Address
from toolplug_redis.store import RedisStore

VALUE, EVENT = b"v" * 500, b"e" * 200


@asynccontextmanager
async def server() -> AsyncGenerator[int]:
    """Run a server without files; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL)
        try:
            async with asyncio.timeout(10), Redis(port=port) as client:
                while True:
                    with suppress(RedisError):
                        await client.execute_command("PING")
                        break
                    await asyncio.sleep(0.01)
            yield port
        finally:
            process.kill()
            await process.wait()


@asynccontextmanager
async def commits() -> AsyncGenerator[Batch]:
    """Commit a record of 500 bytes with an event of 200."""
    async with server() as port, RedisStore(Address(host="127.0.0.1", port=port)) as store:

        async def batch(n: int) -> float:
            begun = perf_counter()
            for _ in range(n):
                await store.commit("session/one", VALUE, events=[EVENT])
            return perf_counter() - begun

        yield batch


@asynccontextmanager
async def sets() -> AsyncGenerator[Batch]:
    """Set a key to 700 bytes."""
    async with server() as port, Redis(port=port) as client:

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
