"""The event loop of a command. It ends even where a tool that ran in it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, cast

import typer

from toolplug.cli.crashes import left_running
from toolplug.cli.logs import log_warnings
from toolplug.cli.process_exit import GRACE_S, leave_now
from toolplug.crashes import log_crash
from toolplug.host.host import Host

Parameters = ParamSpec("Parameters")

LEAVE_S = 6.0
"""Providers get 5 s to close; a tool that was answered at its deadline and still runs gets no more than they do."""

_LOG = logging.getLogger("toolplug.cli")


def async_command(function: Callable[Parameters, Coroutine[Any, Any, int | None]]) -> Callable[Parameters, None]:
    """Make a Typer command of a coroutine function that returns the exit code; None is 0.

    Log lines are warnings and worse, on stderr. Errors are raised for `main`, which reports them. The configuration is
    the function's parameter `config`, where it has one.
    """

    @wraps(function)
    def command(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        log_warnings(cast("Path | None", kwargs.get("config")))
        raise typer.Exit(run_to_end(function(*args, **kwargs)))

    return command


def run_to_end(
    main: Coroutine[Any, Any, int | None], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> int:
    """Run the command's coroutine and return its exit code; None is 0.

    An abandoned tool that does not end delays nothing: the process then ends at once, with that code. (`asyncio.run`
    would wait for it forever.) A `SystemExit` of a task or callback that a provider left running ends only that task.
    """
    runner = asyncio.Runner(loop_factory=loop_factory)
    code: int | None = None
    try:
        code = _run_through_exits(runner, main)
        return code
    finally:
        if runner.get_loop().run_until_complete(_cancel_leftovers()):
            runner.close()
        elif code is not None:
            leave_now(code)


def _run_through_exits(runner: asyncio.Runner, main: Coroutine[Any, Any, int | None]) -> int:
    task = runner.get_loop().create_task(main)
    while not task.done():
        try:
            runner.run(_wait_for(task))
        except SystemExit as error:  # asyncio raises it from the loop, whichever task it was in
            if not task.done():
                log_crash("a task or callback that was left running", error, then="the rest goes on")
    return task.result() or 0


async def _wait_for(task: asyncio.Task[int | None]) -> None:
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise


async def _cancel_leftovers() -> bool:
    """Cancel the tasks that are left; True where they and the threads of `asyncio.to_thread` end within `GRACE_S`."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    return await _end_in_time(left) and await _end_in_time({asyncio.create_task(_join_threads())})


async def _end_in_time(tasks: set[asyncio.Task[Any]]) -> bool:
    if not tasks:
        return True
    _, pending = await asyncio.wait(tasks, timeout=GRACE_S)
    return not pending


async def _join_threads() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()


@asynccontextmanager
async def entered(host: Host) -> AsyncGenerator[Host]:
    """Run the host. What has not closed within `LEAVE_S` is left to the end of the process."""
    await host.__aenter__()
    try:
        with left_running(host):
            yield host
    finally:
        try:
            async with asyncio.timeout(LEAVE_S):
                await host.__aexit__(None, None, None)
        except TimeoutError:
            _LOG.warning("not everything was closed within %g s", LEAVE_S)
