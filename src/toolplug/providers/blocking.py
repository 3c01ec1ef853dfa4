"""A function that blocks, called from a coroutine outside of any plan."""

from __future__ import annotations

import asyncio

from toolplug.catalog.call import CallContext, ToolCall
from toolplug.catalog.plan import Target
from toolplug.execution.threads import DaemonThreads

LONGEST_S = 24 * 3600.0


async def in_own_thread(target: Target, call: ToolCall, context: CallContext) -> object:
    """Wait for the target in a daemon thread that ends with it; raises `TimeoutError` at the context's deadline."""
    threads = DaemonThreads(call.name)
    job = threads.start(target, call, context)
    threads.close()
    seconds = LONGEST_S
    if context.deadline is not None:
        seconds = context.deadline - asyncio.get_running_loop().time()
    if not await job.wait(seconds):
        raise TimeoutError
    if job.error is not None:
        raise job.error
    return job.value
