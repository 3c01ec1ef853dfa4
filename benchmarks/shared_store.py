"""From the return of a commit until a reader in another process has its bytes: shared SQLite."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from time import monotonic

from benchmarks.frame import MILLISECONDS, Batch, Row
from toolplug.sqlite.store import SqliteStore
from toolplug.stores.store import Change, Store

EVERY_S = 0.004
VALUE, EVENT = b"v" * 500, b"e" * 200


async def read(opened: AbstractAsyncContextManager[Store]) -> None:
    """Print the revision of each change, and the time at which its bytes were here; 0 if they were not."""
    async with opened as store:
        async for change in store.watch("session/"):
            revision = change.revision if isinstance(change, Change) and change.value is not None else 0
            print(revision, monotonic(), flush=True)


@asynccontextmanager
async def wake_ups(module: str, place: str, opened: AbstractAsyncContextManager[Store]) -> AsyncGenerator[Batch]:
    """Commit in this process, and wait for the line of another one; both read one monotonic clock.

    The other one runs this module, which calls `read`, with the place of the store.
    """
    reader = await asyncio.create_subprocess_exec(sys.executable, "-m", module, place, stdout=PIPE)
    assert reader.stdout is not None
    lines = reader.stdout
    try:
        async with opened as store:
            await lines.readline()  # the watch begins

            async def batch(n: int) -> float:
                took_s = 0.0
                for _ in range(n):
                    await asyncio.sleep(EVERY_S)
                    revision = await store.commit("session/one", VALUE, events=[EVENT])
                    returned = monotonic()
                    while not (line := await lines.readline()).startswith(b"%d " % revision):
                        assert line, "the reader has ended"
                    # It may have them before the writer's task runs again.
                    took_s += max(0.0, float(line.split()[1]) - returned)
                return took_s

            yield batch
    finally:
        reader.kill()
        await reader.wait()


@asynccontextmanager
async def heard() -> AsyncGenerator[Batch]:
    """Measure a shared SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "state.db")
        async with wake_ups("benchmarks.shared_store", str(file), SqliteStore(file, shared=True)) as batch:
            yield batch


ROWS = (
    Row(
        name="shared SQLite: after a commit on A, until B has its bytes",
        ours=heard,
        hold=5.0,
        aim=1.0,
        unit=MILLISECONDS,
        pairs=501,
        batch_s=0,
    ),
)

if __name__ == "__main__":
    asyncio.run(read(SqliteStore(Path(sys.argv[1]), shared=True)))
