"""Work that goes on whoever waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from toolplug.errors import StoreError

_LOG = logging.getLogger("toolplug.sessions")

T = TypeVar("T")


class Background:
    """Tasks that end with the sessions; what one of them raises is logged and costs no other."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._unbroken: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Run the work as a task of this name."""
        task = asyncio.create_task(_logged(work, name), name=f"toolplug-{name}")
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            work.close()  # it was not begun where the task was cancelled before its first step

        task.add_done_callback(ended)
        return task

    async def unbroken(self, work: Coroutine[None, None, T], name: str) -> T:
        """Do the work to its end, also where its caller goes away meanwhile or the sessions are closed."""
        task = asyncio.create_task(work, name=f"toolplug-{name}")
        self._unbroken.add(task)
        task.add_done_callback(self._unbroken.discard)
        return await asyncio.shield(task)

    def finish(self, work: Coroutine[None, None, None], name: str) -> None:
        """Do the work to its end, also where the sessions are closed."""
        task = asyncio.create_task(_logged(work, name), name=f"toolplug-{name}")
        self._unbroken.add(task)
        task.add_done_callback(self._unbroken.discard)

    async def aclose(self) -> None:
        """Cancel what still runs, but for what is unbroken, and wait for all of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._unbroken, return_exceptions=True)


async def _logged(work: Coroutine[None, None, None], name: str) -> None:
    try:
        await work
    except StoreError as error:
        _LOG.error("%s: %s", name, error)
    except Exception:  # noqa: BLE001  a named boundary: nobody waits who could hear it
        _LOG.exception("%s failed", name)
