"""The event loop of a command, which ends even if a tool that ran in it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from inspect import Parameter, Signature, signature
from typing import Any, TypeAlias

import typer

from toolplug.cli.crashes import left_running
from toolplug.cli.logs import log_warnings
from toolplug.cli.process_exit import GRACE_S, leave_now
from toolplug.crashes import log_crash
from toolplug.host.host import Host

Command: TypeAlias = Callable[..., Coroutine[Any, Any, int | None]]

LEAVE_S = 6.0
"""Seconds to close a host: the 5 s of a provider, and a second more for what it leaves."""

_LOG = logging.getLogger("toolplug.cli")


def async_command(app: typer.Typer, name: str | None = None) -> Callable[[Command], Command]:
    """Register a coroutine function, which returns the exit code (None for 0), as a command of `app`.

    A parameter named `options` is a dataclass whose fields are options that several commands share; the help lists them
    last. Warnings and errors of the log go to stderr. `command_line.run` reports what the function raises.
    """

    def register(function: Command) -> Command:
        own = dict(signature(function, eval_str=True).parameters)
        group = own.pop("options", None)
        shared = signature(group.annotation, eval_str=True).parameters if group else dict[str, Parameter]()

        def command(**given: Any) -> None:
            log_warnings(given["config"])
            if group is not None:
                given["options"] = group.annotation(**{name: given.pop(name) for name in shared})
            raise typer.Exit(run_to_end(function(**given)))

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        every = [item.replace(kind=Parameter.KEYWORD_ONLY) for item in (*own.values(), *shared.values())]
        command.__signature__ = Signature(every)  # pyright: ignore[reportFunctionMemberAccess]  # Typer reads it
        app.command(name)(command)
        return function

    return register


def run_to_end(
    main: Coroutine[Any, Any, int | None], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> int:
    """Run the coroutine of a command and return its exit code; None is 0.

    If a task or thread that a provider left does not end within `GRACE_S` seconds, the process ends with that code;
    `asyncio.run` would wait forever. A `SystemExit` raised by such a task or callback is logged and ends only itself.
    """
    runner = asyncio.Runner(loop_factory=loop_factory)
    code: int | None = None
    try:
        code = _run_through_exits(runner, main)
        return code
    finally:
        # `runner.close` waits for tasks as well, but without a limit.
        if runner.get_loop().run_until_complete(cancel_leftovers()):
            runner.close()
        # Without a code an exception is on its way, and is to be printed first. `bound_exit` then ends the process.
        elif code is not None:
            leave_now(code)


def _run_through_exits(runner: asyncio.Runner, main: Coroutine[Any, Any, int | None]) -> int:
    task = runner.get_loop().create_task(main)
    while not task.done():
        try:
            # Again after each `SystemExit`: it leaves `run`, but the task of the command is still there and goes on.
            runner.run(_wait_for(task))
        except SystemExit as error:  # asyncio raises it from the loop, whichever task it was in
            if not task.done():
                log_crash("a task or callback that was left running", error, then="the rest goes on")
    return task.result() or 0


async def _wait_for(task: asyncio.Task[int | None]) -> None:
    try:
        await asyncio.wait({task})
    # The runner cancels this task at SIGINT, not the one of the command.
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise


async def cancel_leftovers() -> bool:
    """Cancel the remaining tasks. Return whether they, then the threads of `to_thread`, end within `GRACE_S` each."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if not await _end_in_time(left):
        return False
    return await _end_in_time({asyncio.create_task(asyncio.get_running_loop().shutdown_default_executor())})


async def _end_in_time(tasks: set[asyncio.Task[Any]]) -> bool:
    if not tasks:
        return True
    _, pending = await asyncio.wait(tasks, timeout=GRACE_S)
    return not pending


@asynccontextmanager
async def enter_host(host: Host) -> AsyncGenerator[Host]:
    """Enter the host and log crashes of what its providers leave running. Closing takes at most `LEAVE_S` seconds."""
    # Not `async with host`: the timeout is to hold for leaving only.
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
