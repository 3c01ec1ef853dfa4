"""Calls into provider code outside of tool calls. Each has a time limit, and its errors become `ProviderError`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from toolplug.crashes import find_blamed, log_crash, outline_error
from toolplug.errors import HostKeyError, InvalidDefinition, ProviderError
from toolplug.providers.entry import ProviderEntry, ProviderState
from toolplug.runtime.timers import LoopTimeout, WorkTime

T = TypeVar("T")
Step = Callable[[], Coroutine[Any, Any, object]]

START_S = 30.0
CLOSE_S = 5.0
DIAGNOSE_S = 15.0


def run_step(entry: ProviderEntry, what: str, function: Callable[[], T]) -> T:
    """Return the value of a synchronous step. Raises `ProviderError` for any exception of it."""
    try:
        return function()
    # `SystemExit` and the like too: a package that ends the process in its constructor is a broken package.
    except BaseException as error:
        raise _failure(entry, what, error) from error


async def await_step(
    entry: ProviderEntry,
    what: str,
    step: Callable[[], Coroutine[Any, Any, object]],
    within_s: float,
    *,
    while_working: bool = False,
) -> None:
    """Wait for a step in its own task, at most so many seconds. Raises `ProviderError` if it fails or does not end.

    `while_working`: longer, as long as this process works, until it has had so many seconds of a processor.
    """
    # A task of its own: cancel scopes that a step leaves open would otherwise cancel the host.
    task = asyncio.create_task(_outcome(step), name=f"toolplug-{what}-{entry.key}")
    work = WorkTime(within_s)
    try:
        while not task.done():
            # Not `asyncio.timeout`: on a busy machine other providers import at the same time and hold the loop.
            try:
                async with LoopTimeout(within_s):
                    await asyncio.wait({task})
            except TimeoutError:
                if not (while_working and work.goes_on()):
                    raise
    except asyncio.CancelledError:
        task.cancel()
        raise
    except TimeoutError:
        task.cancel()
        raise ProviderError(
            f"{entry.owner}: {what} has not ended after {within_s:g} s",
            state=ProviderState.START_FAILED,
            fix=f"let {what} begin its slow work in the background",
        ) from None
    error = task.result()
    if error is not None:
        raise _failure(entry, what, error) from error


async def _outcome(step: Step) -> BaseException | None:
    try:
        await step()
    except BaseException as error:  # noqa: BLE001  a SystemExit that leaves a task ends the loop
        return error
    return None


_DOUBLED = "Duplicated timeseries in CollectorRegistry"
"""The beginning of the `ValueError` of prometheus-client for a metric that is made a second time in one process."""

_IN_WORDS = (InvalidDefinition, HostKeyError, ModuleNotFoundError)
"""Errors whose text says what is wrong, or which package is missing; where they came from says no more."""


def _failure(entry: ProviderEntry, what: str, error: BaseException) -> ProviderError:
    """The problem as the operator reads it; where the exception came from is in the log."""
    # A provider in a process of its own: the error was worded there.
    if isinstance(error, ProviderError):
        return error
    text = entry.masked(str(error)).strip()
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    blame = find_blamed(error, entry.owner.package) if isinstance(error, ModuleNotFoundError) else None
    if blame is not None:
        said += f" at {blame.file}:{blame.line}"
    if not isinstance(error, _IN_WORDS):
        log_crash(what.replace("its ", "the ", 1), error, entry.owner)  # as in "the constructor of provider 'x'"
    doubled = isinstance(error, ValueError) and text.startswith(_DOUBLED)
    fix = "make its metrics with registry=None and return them from collectors()" if doubled else "fix the cause"
    if isinstance(error, ModuleNotFoundError) and error.name:
        fix = f"install the package that has {error.name.partition('.')[0]!r}"
    without = ", or set required: false to start without this provider" if entry.required and entry.in_file else ""
    return ProviderError(
        f"{entry.owner}: {what} raised {said}",
        state=ProviderState.START_FAILED,
        fix=f"{fix}{without}",
        summary=f"{entry.owner}: {what} raised {outline_error(error, entry.owner.package)}",
    )
