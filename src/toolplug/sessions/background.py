"""Work that nobody waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from toolplug.errors import StoreError

_LOG = logging.getLogger("toolplug.sessions")


class Background:
    """Tasks that end with the sessions; what one of them raises is logged and costs no other."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Run the work as a task of this name."""
        task = asyncio.create_task(_logged(work, name), name=f"toolplug-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Cancel what still runs, and wait for it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _logged(work: Coroutine[None, None, None], name: str) -> None:
    try:
        await work
    except StoreError as error:
        _LOG.error("%s: %s", name, error)
    except Exception:  # noqa: BLE001  a named boundary: nobody waits who could hear it
        _LOG.exception("%s failed", name)
