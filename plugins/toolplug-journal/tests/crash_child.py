"""A host that says on its output which calls have been answered, until it is killed: `crash_child.py FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from toolplug.testing.in_process import in_process_host

CONFIG = {"providers": {"journal": {"enabled": True}, "hello": {"enabled": True}}}


async def main() -> None:
    async with in_process_host(CONFIG, folder=Path(sys.argv[1])) as served:
        number = 0
        while True:
            number += 1
            body = {"id": str(number), "name": "hello", "arguments": {}}
            answer = await served.client.post("/v1/tool-calls", json=body)
            print(answer.json()["call_id"], flush=True)


asyncio.run(main())
