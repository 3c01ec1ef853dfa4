"""Committed updates a second, 50 tasks at once, against single-row commits of the bare `sqlite3`: interleaved, one run.

`python benchmarks/store.py`. An update is a record of 500 bytes and an event of 200; the bare side writes the same two
rows in one transaction, in the same journal and durability mode, on one connection without any thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from toolplug.sqlite.store import SqliteStore

ROUNDS = 7
TASKS = 50
UPDATES = 4000
VALUE, EVENT = b"v" * 500, b"e" * 200


async def ours(folder: Path, tasks: int) -> float:
    """Return our committed updates a second."""
    async with SqliteStore(folder / "ours.db") as store:

        async def update(key: str) -> None:
            for _ in range(UPDATES // tasks):
                await store.commit(key, VALUE, events=[EVENT])

        begin = time.perf_counter()
        await asyncio.gather(*(update(f"session/{number}") for number in range(tasks)))
        return UPDATES / (time.perf_counter() - begin)


def bare(folder: Path) -> float:
    """Return the committed updates a second of `sqlite3` alone."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, value BLOB)")
        connection.execute("CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, key TEXT, data BLOB)")
        begin = time.perf_counter()
        for number in range(UPDATES):
            key = f"session/{number % TASKS}"
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?)", (key, VALUE))
            connection.execute("INSERT INTO events (key, data) VALUES (?, ?)", (key, EVENT))
            connection.execute("COMMIT")
        return UPDATES / (time.perf_counter() - begin)
    finally:
        connection.close()


def main() -> None:
    """Print the medians and their ratios."""
    many: list[float] = []
    one: list[float] = []
    plain: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(ROUNDS):
            many.append(asyncio.run(ours(folder, TASKS)))
            plain.append(bare(folder))
            one.append(asyncio.run(ours(folder, 1)))
    other = statistics.median(plain)
    for row, rates in ((f"{TASKS} tasks", many), ("1 task", one)):
        rate = statistics.median(rates)
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        print(f"{row}: {rate:,.0f}/s ({spread}); bare sqlite3 {other:,.0f}/s; ratio {rate / other:.2f}")


if __name__ == "__main__":
    main()
