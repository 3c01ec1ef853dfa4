"""Calls that run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.execution.executor import ToolExecutor


class Job(NamedTuple):
    """One call to be made."""

    call: ToolCall
    context: CallContext


async def results(
    executor: ToolExecutor, jobs: Sequence[Job], *, parallel: bool
) -> AsyncGenerator[tuple[int, ToolResult]]:
    """Each job's place and result, as they end. Whoever closes it, or is cancelled, cancels the calls that run."""
    if not parallel or len(jobs) < 2:
        for place, job in enumerate(jobs):
            yield place, await executor.execute(job.call, job.context)
        return
    running = {asyncio.ensure_future(executor.execute(*job)): place for place, job in enumerate(jobs)}
    try:
        waiting = set(running)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=running.__getitem__):
                yield running[task], task.result()
    finally:
        for task in running:
            task.cancel()
