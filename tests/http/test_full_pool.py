"""The loop's own threads belong to every provider: the host works where their calls have taken all of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from tests.http.conftest import client_of

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

POOL = min(32, (os.cpu_count() or 1) + 4)
"""The threads that `asyncio.to_thread` has (`concurrent.futures.ThreadPoolExecutor`)."""


@pytest.mark.requirement("H-provider-exhausts-threads")
async def test_hung_threads_of_the_loop_keep_neither_a_scrape_nor_a_reload(config: Callable[[str], Path]) -> None:
    release = Event()
    async with open_host(config("providers: {}")) as host, client_of(create_app(host)) as client:
        hung = [asyncio.create_task(asyncio.to_thread(release.wait)) for _ in range(POOL)]
        await asyncio.sleep(0)
        try:
            assert (await client.get("/metrics")).status_code == 200
            assert (await client.post("/v1/reload")).status_code == 200
        finally:
            release.set()
            await asyncio.gather(*hung)
