"""A process whose files may not grow: `python full_disk_child.py FILE`; prints what its commits came to, as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
from pathlib import Path

from toolplug.errors import StoreError
from toolplug.sqlite.store import SqliteStore

SMALL = 300_000


async def main(file: str) -> None:
    acknowledged, failed = 0, list[str]()
    async with SqliteStore(Path(file)) as store:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, hard))
        while len(failed) < 3:
            try:
                acknowledged = await store.commit("key", b"x" * 20_000, events=[b"y" * 5_000])
            except StoreError as error:
                failed.append(type(error).__name__)
        record = await store.read("key")
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        after = await store.commit("key", b"there is room again", events=[b"event"])
    told = {
        "failed": failed,
        "acknowledged while full": acknowledged,
        "read while full": record.revision if record else 0,
        "acknowledged after": after,
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    asyncio.run(main(sys.argv[1]))
