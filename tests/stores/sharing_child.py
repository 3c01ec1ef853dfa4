"""A process that shares a SQLite store; it prints a line for each change that its watch yields.

`python -m tests.stores.sharing_child FILE watch`, or `… write KEY COUNT`: COUNT commits, one after the other.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from toolplug.sqlite.store import SqliteStore
from toolplug.stores.store import Change, Missed


async def _watch(store: SqliteStore) -> None:
    async for change in store.watch(""):
        match change:
            case Missed():
                print("missed", flush=True)
            case Change(key, revision, value, events):
                sent = float(value) if value and key == "clock" else 0.0
                took_ms = (time.monotonic() - sent) * 1000
                print(key, revision, None if events is None else len(events), f"{took_ms:.3f}", flush=True)


async def _write(store: SqliteStore, key: str, count: int) -> None:
    for number in range(count):
        await store.commit(key, str(number).encode(), events=[b"event"])
    print("written", flush=True)
    await asyncio.sleep(60)


async def _main(file: Path, what: str, *rest: str) -> None:
    async with SqliteStore(file, shared=True) as store:
        print("open", flush=True)
        if what == "watch":
            await _watch(store)
        else:
            await _write(store, rest[0], int(rest[1]))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), *sys.argv[2:]))
