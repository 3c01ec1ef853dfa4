"""Whether a source of tools takes calls, and the wait until the last one has ended."""

from __future__ import annotations

import asyncio


class SourceSwitch:
    """The switch of one started provider. A closed one never opens again; its calls end on their own.

    `running` counts calls and route handlers alike; whoever raises it calls `leave` once when the work has ended.
    """

    __slots__ = ("_drained", "open", "running")

    def __init__(self) -> None:
        self.open: bool = True
        self.running: int = 0
        self._drained: asyncio.Event | None = None

    def leave(self) -> None:
        """One call or handler has ended."""
        self.running -= 1
        if self.running == 0 and self._drained is not None:
            self._drained.set()

    async def drained(self, patience_s: float) -> bool:
        """Wait until nothing runs, at most so long; False when something still does."""
        if self.running == 0:
            return True
        if self._drained is None:
            self._drained = asyncio.Event()
        self._drained.clear()
        try:
            async with asyncio.timeout(patience_s):
                await self._drained.wait()
        except TimeoutError:
            return False
        return True
