"""The event loop of one command, which ends whatever the tools that ran in it do."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from traceback import extract_tb
from typing import Any

from toolplug.host.host import Host

GRACE_S = 1.0
"""How long tasks that are left may take to end once they are cancelled; then how long threads of `to_thread` may."""

_LOG = logging.getLogger("toolplug.cli")


def run_to_end(
    main: Coroutine[Any, Any, int], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> int:
    """Run the command's coroutine and return its exit code.

    A tool that was abandoned and will not go keeps nobody waiting: the process then ends at once, with that code.
    (`asyncio.run` would wait for it without end.) A `SystemExit` of a task or callback that a provider left running
    ends nothing but itself.
    """
    runner = asyncio.Runner(loop_factory=loop_factory)
    code: int | None = None
    try:
        code = _carried_on(runner, main)
        return code
    finally:
        if runner.get_loop().run_until_complete(_settled()):
            runner.close()
        elif code is not None:
            leave_now(code)


def leave_now(code: int) -> None:
    """End the process without waiting for anything but what has been written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _carried_on(runner: asyncio.Runner, main: Coroutine[Any, Any, int]) -> int:
    task = runner.get_loop().create_task(main)
    while not task.done():
        try:
            runner.run(_ended(task))
        except SystemExit as error:  # asyncio hands it through the loop, whoever's task it was
            if not task.done():
                _LOG.error("a task or callback that was left running raised SystemExit at %s", _place(error))
    return task.result()


async def _ended(task: asyncio.Task[int]) -> None:
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise


def _place(error: BaseException) -> str:
    innermost = extract_tb(error.__traceback__)[-1]
    return f"{innermost.filename}:{innermost.lineno}; the rest goes on"


async def _settled() -> bool:
    """Cancel what is left; has it ended within its grace, with the threads that `asyncio.to_thread` made."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    return await _in_time(left) and await _in_time({asyncio.create_task(_threads_joined())})


async def _in_time(tasks: set[asyncio.Task[Any]]) -> bool:
    if not tasks:
        return True
    _, pending = await asyncio.wait(tasks, timeout=GRACE_S)
    return not pending


async def _threads_joined() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()


def bound_exit(before: Collection[threading.Thread], code: int) -> None:
    """End the process with that code soon, if it does not end by itself.

    Python joins every thread that is no daemon at its exit, those of a `ThreadPoolExecutor` among them. Idle ones end
    there; one that hangs would keep the process for ever. Where nothing was left that was not there `before`, nothing
    is done.
    """
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    if not left:
        return
    guard = threading.Timer(GRACE_S, _give_up, (left, code))
    guard.daemon = True
    try:
        guard.start()
    except RuntimeError:  # the process can have no more threads
        _give_up(left, code)


def _give_up(left: Collection[threading.Thread], code: int) -> None:
    names = ", ".join(thread.name for thread in left if thread.is_alive())
    _LOG.warning("threads that a provider left do not end (%s); leaving them", names)
    leave_now(code)


LEAVE_S = 6.0
"""Providers get 5 s to close; a tool that was answered at its deadline and still runs gets no more than they do."""


@asynccontextmanager
async def entered(host: Host) -> AsyncGenerator[Host]:
    """The host while it runs. What has not closed in time is left to the end of the process."""
    await host.__aenter__()
    try:
        yield host
    finally:
        try:
            async with asyncio.timeout(LEAVE_S):
                await host.__aexit__(None, None, None)
        except TimeoutError:
            _LOG.warning("not everything was closed within %g s", LEAVE_S)
