"""The store in PostgreSQL, on a server of its own: commits of 16 tasks, and the way of a change to another process."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import asyncpg

from benchmarks.frame import MILLISECONDS, Batch, Row
from benchmarks.shared_store import EVENT, VALUE, read, wake_ups
from toolplug_postgres.server import parse_url
from toolplug_postgres.store import PostgresStore

TASKS = 16

_BARE_TABLES = """
CREATE TABLE records (key text PRIMARY KEY, value bytea);
CREATE TABLE events (id bigserial PRIMARY KEY, key text, data bytea);
"""
_BARE = """
WITH record AS (INSERT INTO records VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value)
INSERT INTO events (key, data) VALUES ($1, $3)
"""


@contextmanager
def server() -> Generator[str]:
    """Start a server with its default durability; gives the folder of its Unix socket."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    with tempfile.TemporaryDirectory() as folder:
        lent: dict[str, Any] = {}
        if os.geteuid() == 0:  # as whom PostgreSQL refuses to run
            user = pwd.getpwnam("postgres")
            lent = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            shutil.chown(folder, user.pw_uid, user.pw_gid)
        data = f"{folder}/data"
        initdb = [
            programs / "initdb",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "-D",
            data,
        ]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, **lent)
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
        process = subprocess.Popen(
            [programs / "postgres", "-D", data, *options], stderr=subprocess.DEVNULL, cwd=folder, **lent
        )
        try:
            while subprocess.run([programs / "pg_isready", "--quiet", "-h", folder], check=False).returncode:
                sleep(0.05)
            yield folder
        finally:
            process.terminate()
            process.wait()


def opened(folder: str) -> PostgresStore:
    """Return the store of a server, which is not open yet."""
    return PostgresStore(parse_url(f"postgresql://postgres@/postgres?host={folder}"))


@asynccontextmanager
async def heard() -> AsyncGenerator[Batch]:
    """Measure the way of a change to another process."""
    with server() as folder:
        async with wake_ups("benchmarks.postgres_store", folder, opened(folder)) as batch:
            yield batch


@asynccontextmanager
async def committed() -> AsyncGenerator[Batch]:
    """Commit a record and an event, in 16 tasks."""
    with server() as folder:
        async with opened(folder) as store:

            async def batch(n: int) -> float:
                async def commit(task: int) -> None:
                    for _ in range(-(-n // TASKS)):
                        await store.commit(f"session/{task}", VALUE, events=[EVENT])

                begun = monotonic()
                await asyncio.gather(*(commit(task) for task in range(TASKS)))
                return monotonic() - begun

            yield batch


@asynccontextmanager
async def inserted() -> AsyncGenerator[Batch]:
    """Write the same two rows by one statement of the bare driver, on one connection."""
    with server() as folder:
        connection = await asyncpg.connect(host=folder, user="postgres", database="postgres")
        try:
            await connection.execute(_BARE_TABLES)

            async def batch(n: int) -> float:
                begun = monotonic()
                for number in range(n):
                    await connection.execute(_BARE, f"session/{number % TASKS}", VALUE, EVENT)
                return monotonic() - begun

            yield batch
        finally:
            await connection.close()


ROWS = (
    Row(
        name="Postgres: commits of 16 tasks, by the clock",
        ours=committed,
        other=inserted,
        against="asyncpg, one connection",
        hold=0.6,
        aim=0.3,
        pairs=31,
        batch_s=0.2,
    ),
    Row(
        name="Postgres: after a commit on A, until B has its bytes",
        ours=heard,
        hold=5.0,
        aim=1.0,
        unit=MILLISECONDS,
        pairs=501,
        batch_s=0,
    ),
)

if __name__ == "__main__":
    asyncio.run(read(opened(sys.argv[1])))
