"""A process that commits until it is killed: `python crash_child.py FILE [AT]`.

Writes a number as a line of its own once its commit of `key` and its extension of `extended` are acknowledged. With AT
it kills itself at that statement.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

from tests.stores.failing_connection import Fuse, burning, kill

from toolplug.sqlite.store import SqliteStore

KEPT = 8
TTL_S = 1000


def stopped() -> float:
    """Return the time: it stands still, so that the expiry tells the time to live."""
    return 0.0


async def main(file: str, at: int) -> None:
    connection = burning(Fuse(at, kill)) if at else sqlite3.Connection
    async with SqliteStore(Path(file), kept_events=KEPT, clock=stopped, connection=connection) as store:
        if await store.read("extended") is None:
            await store.commit("extended", b"value")
        record = await store.read("key")
        number = int(record.value) + 1 if record else 0
        while not at or number < 12:
            # The neighbours share the transaction.
            await asyncio.gather(
                store.commit("key", str(number).encode(), events=[str(number).encode()]),
                store.commit("neighbour", b"x" * 3000, events=[b"y" * 500]),
                store.commit("passing", None if number % 2 else b"here"),
                store.extend("extended", events=[str(number).encode()], ttl_s=TTL_S + number),
            )
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            number += 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
