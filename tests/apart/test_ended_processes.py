"""What a host has opened of a process is closed whenever its start is given up."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any, cast

import pytest
from tests.apart.starting import until

from toolplug.apart.processes import OutputLog, ProcessTarget, WorkerProcess

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.requirement("I36-apart")]


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_process_that_is_killed_while_it_is_connected_leaves_no_descriptor(turns: int, cancelled: bool) -> None:
    target = ProcessTarget(key="notes", owner="provider 'notes'", hello={})
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    process = WorkerProcess(target)
    connecting = asyncio.create_task(process.connect(cast("Any", asyncio.Protocol()), OutputLog(target)))
    for _ in range(turns):
        await asyncio.sleep(0)
    if cancelled:
        connecting.cancel()
    process.kill()
    await asyncio.gather(connecting, return_exceptions=True)
    await process.end_output()
    await until(lambda: len(os.listdir("/proc/self/fd")) == before)
