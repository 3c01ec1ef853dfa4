"""Hosts that share a store: calls from one process to another, their trips to the store, and what a call costs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.connection import Connection, request
from benchmarks.frame import MILLISECONDS, Batch, Row, Unit
from benchmarks.plugin import CLIENT, JSON
from benchmarks.process import Served, started
from benchmarks.redis_store import server
from benchmarks.relay import relaying
from benchmarks.serve import hosted, replicas

FAR_MS = 10
"""How long anything takes to the store or back in the row that counts trips."""
HELLO = request(
    "POST",
    "/v1/tool-calls",
    {**CLIENT, **JSON},
    json.dumps({"name": "hello", "arguments": {"name": "World"}}).encode(),
)


@asynccontextmanager
async def between_workers() -> AsyncGenerator[Batch]:
    """Relay calls between two hosts on one SQLite file."""
    with (
        tempfile.TemporaryDirectory() as folder,
        replicas(2, f"sqlite:///{Path(folder, 'state.db')}?shared=true") as (one, other),
        relaying(one, other) as made,
    ):

        async def batch(n: int) -> float:
            return made(n)

        yield batch


@asynccontextmanager
async def trips() -> AsyncGenerator[Batch]:
    """Relay calls between two hosts near Redis, and between two that are far from it: the difference, in trips."""
    with server() as redis, ExitStack() as life:
        far = life.enter_context(started("benchmarks.far_server", str(redis.port), str(FAR_MS)))
        near_made, far_made = (
            life.enter_context(relaying(*life.enter_context(replicas(2, f"redis://127.0.0.1:{port}?prefix={port}"))))
            for port in (redis.port, far.port)
        )

        async def batch(n: int) -> float:
            return (far_made(n) - near_made(n)) * 1e3 / (2 * FAR_MS)

        yield batch


@asynccontextmanager
async def calls_of_replicas() -> AsyncGenerator[Batch]:
    """Call a provider's tool at three hosts on Redis; CPU time of the three."""
    with server() as redis, replicas(3, f"redis://127.0.0.1:{redis.port}") as hosts, ExitStack() as life:
        yield _called(hosts, life)


@asynccontextmanager
async def calls_of_one() -> AsyncGenerator[Batch]:
    """Call a provider's tool at one host with a SQLite file."""
    with hosted() as served, ExitStack() as life:
        yield _called([served], life)


def _called(hosts: list[Served], life: ExitStack) -> Batch:
    connections = [life.enter_context(Connection(host.port)) for host in hosts]

    async def batch(n: int) -> float:
        before = sum(host.cpu_s() for host in hosts)
        # In a row for each host: here they share a processor and its caches, as elsewhere they do not.
        for number in range(n):
            connections[number * len(hosts) // n].ask(HELLO)
        return sum(host.cpu_s() for host in hosts) - before

    return batch


ROWS = (
    Row(
        name="relayed call, two processes on shared SQLite: p50",
        ours=between_workers,
        hold=20,
        aim=5,
        unit=MILLISECONDS,
        pairs=301,
        batch_s=0,
    ),
    Row(
        name="relayed call, two processes over Redis: trips in sequence",
        ours=trips,
        hold=4,
        aim=3,
        unit=Unit(name="trips", scale=1),
        pairs=31,
        batch_s=0,
    ),
    Row(
        name="CPU of a provider's call over HTTP, three replicas",
        ours=calls_of_replicas,
        other=calls_of_one,
        against="one process",
        hold=1.1,
        aim=1.0,
        pairs=31,
        batch_s=0.3,
    ),
)
