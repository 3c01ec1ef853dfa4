"""What a running function reports on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from toolplug.client.answering import Answer
from toolplug.errors import HostError
from toolplug.signatures.values import as_json

MAX_MESSAGE = 1_000
"""Characters that a host takes."""


class Progress:
    """Sends the newest report as soon as the one before it has arrived; what it overtakes is dropped.

    `report` may be called from any thread and never waits.
    """

    def __init__(self, send: Callable[[Answer], Awaitable[object]]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._newest: Answer | None = None
        self._told = asyncio.Event()

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """As `CallContext.report`; what is not JSON is dropped."""
        given = {"progress": progress, "total": total, "message": message and message[:MAX_MESSAGE]}
        said = {key: value for key, value in given.items() if value is not None}
        if as_json(said) is not None:
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody listens any more
                self._loop.call_soon_threadsafe(self._note, said)

    async def run(self) -> None:
        """Send until cancelled. Progress that does not arrive is no fault of the call."""
        while True:
            await self._told.wait()
            self._told.clear()
            if self._newest is not None:
                with suppress(HostError):
                    await self._send(self._newest)

    def _note(self, said: Answer) -> None:
        self._newest = said
        self._told.set()
