"""Lends functions for a try, as `toolplug sessions try` does, and tells what readers of the session get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from toolplug.client.application import Application
from toolplug.client.events import Snapshot, StatusChanged, ToolsChanged, watch
from toolplug.client.tool import Function, Tool
from toolplug.errors import HostRefused, ToolplugError

Change = Snapshot | ToolsChanged | StatusChanged


class LentFunction(NamedTuple):
    """A function to lend, with the options of its decorator."""

    function: Function
    name: str | None = None
    description: str | None = None
    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None


class Trial(NamedTuple):
    """What a try needs of its command.

    `read` returns the functions now, and raises `ToolplugError`; `saved` yields after each change of them. `begun` is
    called with the session's code, `seen` with each event of its readers, and `problem` with what went wrong.
    """

    read: Callable[[], Sequence[LentFunction]]
    saved: AsyncIterator[None]
    begun: Callable[[str], None]
    seen: Callable[[Change], None]
    problem: Callable[[str], None]


async def try_functions(trial: Trial, url: str, *, api_key: str | None, plugin_type: str) -> None:
    """Lend the functions until cancelled, then end the session. Raises `HostError`, and what `read` raises at first."""
    application = Application(url, plugin_type=plugin_type, api_key=api_key)
    application.replace(_tools(trial.read()))
    async with application:
        trial.begun(application.code)
        _tell_refused(application.refused, trial)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_follow(application, trial, url, api_key))
            tasks.create_task(_reload(application, trial))
            await application.serve()


async def _follow(application: Application, trial: Trial, url: str, api_key: str | None) -> None:
    async with aclosing(watch(url, application.code, api_key=api_key)) as changes:
        async for change in changes:
            trial.seen(change)


async def _reload(application: Application, trial: Trial) -> None:
    async for _ in trial.saved:
        try:
            application.replace(_tools(trial.read()), reason="the file was saved")
            await application.settled()
        except HostRefused as error:
            trial.problem(f"the host refuses the change: {error}")
        except ToolplugError as error:
            trial.problem(str(error))
        else:
            _tell_refused(application.refused, trial)


def _tools(functions: Sequence[LentFunction]) -> list[Tool]:
    return [
        Tool(
            each.function,
            name=each.name,
            description=each.description,
            read_only=each.read_only,
            idempotent=each.idempotent,
            destructive=each.destructive,
        )
        for each in functions
    ]


def _tell_refused(refused: Mapping[str, str], trial: Trial) -> None:
    for name, reason in refused.items():
        trial.problem(f"the host refuses {name}: {reason}")
