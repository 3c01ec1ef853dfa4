"""What ends in the background, after those who used it have gone on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

_LOG = logging.getLogger("toolplug.mcp")


class Endings:
    """Tasks that nobody waits for before the end of all."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, ending: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Let it go on by itself. What it raises is logged."""
        task = asyncio.create_task(_logged(ending), name="toolplug-mcp-ending")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        """Wait for all that has begun."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def _logged(ending: Coroutine[None, None, None]) -> None:
    try:
        await ending
    except Exception:  # noqa: BLE001  a named boundary: nobody waits who could hear it
        _LOG.exception("what ends in the background has failed")
