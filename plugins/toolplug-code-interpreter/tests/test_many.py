"""Twenty containers that all want more than their share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.needs("bwrap")]


@pytest.mark.requirement("I3-code-limits")
async def test_twenty_containers_at_once_keep_their_limits(serve: Any) -> None:
    async with serve(memory="96MiB", processes=8, disk="4MiB", output="16KiB", time=8) as served:
        boxes = await asyncio.gather(*(served.one.container(f"box-{n}") for n in range(20)))
        codes = [
            "x = []\nwhile True: x.append(bytearray(10_000_000))",
            "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
            "while True: print('y')",
            "with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
        ]
        results = await asyncio.gather(*(served.one.call(codes[n % 4], box) for n, box in enumerate(boxes)))
        assert {result.status for result in results} == {"tool_error"}
        assert await served.two.run("1 + 1") == "2"
