"""A process that commits until it is killed: `python crash_child.py FILE [AT]`.

Writes the number of every acknowledged commit of `key` as a line of its own. With AT it kills itself at that statement.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

from tests.stores.failing_connection import Fuse, burning, kill

from toolplug.stores.sqlite import SqliteStore

KEPT = 8


async def main(file: str, at: int) -> None:
    connection = burning(Fuse(at, kill)) if at else sqlite3.Connection
    async with SqliteStore(Path(file), kept_events=KEPT, connection=connection) as store:
        record = await store.read("key")
        number = int(record.value) + 1 if record else 0
        while not at or number < 12:
            # The neighbours share the transaction.
            await asyncio.gather(
                store.commit("key", str(number).encode(), events=[str(number).encode()]),
                store.commit("neighbour", b"x" * 3000, events=[b"y" * 500]),
                store.commit("passing", None if number % 2 else b"here"),
            )
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            number += 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
