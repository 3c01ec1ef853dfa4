"""What a host holds for clients of the protocol while it is entered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolplug.execution.own_thread import in_own_thread
from toolplug.mcp.changes import Announcer
from toolplug.mcp.handshakes import Handshake, Handshakes
from toolplug.mcp.speaker import Speaker


class Serving:
    """Costs nothing before the first client comes; then `load` gives what speaks the protocol.

    `over` closes what was opened for a client that has introduced itself and is forgotten.
    """

    def __init__(self, load: Callable[[], Speaker], over: Callable[[Handshake], object]) -> None:
        self._load = load
        self._speaker: asyncio.Future[Speaker] | None = None
        self.announcer: Announcer = Announcer()
        self.handshakes: Handshakes = Handshakes(over=over)

    async def speaker(self) -> Speaker:
        """What speaks the protocol; loaded once, in a thread, as that takes a second. Raises `ModuleNotFoundError`."""
        if self._speaker is None:
            self._speaker = asyncio.ensure_future(in_own_thread(self._load))
        loading = self._speaker
        try:
            return await asyncio.shield(loading)
        except ImportError:
            self._speaker = None
            raise

    def stop(self) -> None:
        """End the streams of all who wait for changes."""
        self.announcer.stop()
        self.handshakes.stop()
