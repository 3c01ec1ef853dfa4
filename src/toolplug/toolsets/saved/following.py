"""Hears from the store when any process changes what somebody has equipped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from toolplug.errors import StoreError
from toolplug.toolsets.saved.owner import Owner
from toolplug.toolsets.saved.saved_records import SavedRecords, announced

WAIT_S = 30.0
PAUSE_S = 1.0
"""Between two tries while the store cannot answer."""

_LOG = logging.getLogger("toolplug.toolsets")


class Following:
    """One task that reads the log of changes.

    `again(owner)` looks at one owner anew, `all_again()` at everybody: what was missed while the store could not answer
    or its log was cut is made up for so.
    """

    def __init__(
        self,
        records: SavedRecords,
        again: Callable[[Owner], Awaitable[None]],
        all_again: Callable[[], Awaitable[None]],
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._records = records
        self._again = again
        self._all_again = all_again
        self._pause_s = pause_s
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load everything and follow from there. Raises `StoreError`."""
        position = await self._records.position()
        await self._all_again()
        self._task = asyncio.create_task(self._follow(position), name="toolplug-toolset-changes")

    async def aclose(self) -> None:
        """Follow no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _follow(self, position: int) -> None:
        known = True
        while True:
            try:
                if not known:
                    position = await self._records.position()
                    await self._all_again()
                events = await self._records.changes(position, wait_s=WAIT_S)
                known = events.known
                for event in events.entries:
                    await self._again(announced(event.data))
                    position = event.id
            except StoreError as error:
                if known:
                    _LOG.warning("changes of what others equip are not heard: %s", error)
                known = False
                await asyncio.sleep(self._pause_s)
