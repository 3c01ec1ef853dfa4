"""The lifetime of an executor that a toolset's factory makes."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import cast

from toolplug.execution.executor import ToolExecutor
from toolplug.toolsets.toolset import Factory

OPEN_S = 30.0
CLOSE_S = 5.0

_LOG = logging.getLogger("toolplug.toolsets")


class NotOpened(Exception):
    """The factory raised, gave no executor, took too long, or was told to end; nothing of its own text is repeated."""


class Opened:
    """Runs a factory once, in a task of its own that also closes what it made: exactly once, however it went.

    A factory may use task groups and timeouts around its executor, since it is entered and left by one task.
    """

    def __init__(self, name: str, factory: Factory, *, open_s: float = OPEN_S, close_s: float = CLOSE_S) -> None:
        self._name = name
        self._factory = factory
        self._open_s = open_s
        self._close_s = close_s
        self._ended = asyncio.Event()
        self._answered = asyncio.Event()
        self._executor: ToolExecutor | None = None
        self._task: asyncio.Task[None] | None = None

    async def executor(self) -> ToolExecutor:
        """Return the executor: the first call starts the factory, later ones wait for it. Raises `NotOpened`."""
        if self._task is None and not self._ended.is_set():
            self._task = asyncio.create_task(self._guarded_life(), name=f"toolplug-toolset-{self._name}")
        if self._executor is None and not self._ended.is_set():
            try:
                async with asyncio.timeout(self._open_s):
                    await self._answered.wait()
            except TimeoutError:
                _LOG.error("the factory of toolset %r has not ended after %g s", self._name, self._open_s)
                self._give_up()
        if self._executor is None:
            raise NotOpened(f"the factory of toolset {self._name!r} made no executor")
        return self._executor

    async def aclose(self) -> None:
        """End what was made, waiting at most a few seconds; a factory that still runs is told to end as well."""
        self._executor = None
        self._ended.set()
        task = self._task
        if task is None:
            return
        if not self._answered.is_set():
            self._answered.set()
            task.cancel()
        done, _ = await asyncio.wait({task}, timeout=self._close_s)
        if not done:
            _LOG.error("toolset %r has not closed after %g s", self._name, self._close_s)
            task.cancel()

    def _give_up(self) -> None:
        self._ended.set()
        self._answered.set()
        if self._task is not None:
            self._task.cancel()

    async def _guarded_life(self) -> None:
        try:
            await self._life()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  a SystemExit that leaves a task ends the loop
            _LOG.error("toolset %r: its factory or its end raised %s", self._name, type(error).__name__)
        finally:
            self._executor = None
            self._answered.set()

    async def _life(self) -> None:
        async with AsyncExitStack() as life:
            made = await _made(self._factory, life)
            if not self._ended.is_set():
                self._executor = made
                self._answered.set()
                await self._ended.wait()


async def _made(factory: Factory, life: AsyncExitStack) -> ToolExecutor:
    """Return the factory's executor, entered if it is a context manager; `life` exits or closes it."""
    made: object = factory()
    if inspect.isawaitable(made):
        made = await cast("Awaitable[object]", made)
    if isinstance(made, AbstractAsyncContextManager):
        made = await life.enter_async_context(cast("AbstractAsyncContextManager[object]", made))
    else:
        close = getattr(made, "aclose", None)
        if callable(close):
            life.push_async_callback(cast("Callable[[], Awaitable[object]]", close))
    if not isinstance(made, ToolExecutor):
        raise TypeError(f"a {type(made).__name__} is no ToolExecutor")
    return made
