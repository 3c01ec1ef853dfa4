"""Readers that wait for the next event of a log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager, suppress

from toolplug.stores.store import Events


class Waiting:
    """The waiting readers of one store, by key. `anyone` is set while there is at least one."""

    def __init__(self) -> None:
        self.anyone: asyncio.Event = asyncio.Event()
        self._bells: dict[str, set[asyncio.Event]] = {}

    async def look(self, key: str, wait_s: float, page: Callable[[], Awaitable[Events]]) -> Events:
        """Return the page as soon as it has entries or is unknown, or after `wait_s` seconds as it is."""
        if wait_s <= 0:
            return await page()
        give_up_at = asyncio.get_running_loop().time() + wait_s
        # Parked before the first look: a commit between look and wait rings.
        with self._parked(key) as bell:
            while True:
                bell.clear()
                events = await page()
                if events.entries or not events.known or asyncio.get_running_loop().time() >= give_up_at:
                    return events
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(give_up_at):
                        await bell.wait()

    def wake(self, keys: Iterable[str]) -> None:
        """Wake the readers of these logs."""
        for key in keys:
            for bell in self._bells.get(key, ()):
                bell.set()

    def wake_all(self) -> None:
        """Wake all readers."""
        self.wake(tuple(self._bells))

    @contextmanager
    def _parked(self, key: str) -> Generator[asyncio.Event]:
        bell = asyncio.Event()
        self._bells.setdefault(key, set()).add(bell)
        self.anyone.set()
        try:
            yield bell
        finally:
            self._bells[key].discard(bell)
            if not self._bells[key]:
                del self._bells[key]
            if not self._bells:
                self.anyone.clear()
