"""MCP sessions of clients of 2025-11-25 and earlier, and what a host keeps for MCP clients while it is entered."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from secrets import token_urlsafe

from toolplug.catalog.catalog import Catalog
from toolplug.mcp.list_changed import ListChangedNotifier
from toolplug.mcp.server_endpoint import Client, McpServerEndpoint, Questions, RequestId
from toolplug.runtime.threads import in_own_thread

IDLE_S = 1800.0
"""A session without a request and without an open stream for so long is over."""
MOST = 10_000
"""Beyond it, the one that was used longest ago goes: its client is told to begin again."""

CallOff = Callable[[], None]


def _nothing(handshake: Handshake) -> None:
    """Nothing was kept for it."""


class Handshake:
    """One client that has introduced itself. `owner` is who may use it; `seen` the etag of what it last listed."""

    __slots__ = ("client", "id", "owner", "questions", "running", "seen", "stream", "used_at")

    def __init__(self, owner: Hashable, client: Client) -> None:
        self.id: str = token_urlsafe(24)
        self.owner: Hashable = owner
        self.client: Client = client
        self.questions: Questions = Questions()
        self.running: dict[RequestId, CallOff] = {}
        self.stream: CallOff | None = None
        self.seen: str | None = None
        self.used_at: float = 0.0

    def listed(self, catalog: Catalog) -> None:
        """The client was shown this list."""
        self.seen = catalog.etag

    def cancel(self, request: object) -> None:
        """Call a running request off; nothing where there is none of that id."""
        if isinstance(request, str | int) and (call_off := self.running.get(request)) is not None:
            call_off()

    def end(self) -> None:
        """Call everything off that runs for it."""
        for call_off in [*self.running.values(), *([self.stream] if self.stream is not None else [])]:
            call_off()

    @property
    def busy(self) -> bool:
        """Does something run for it."""
        return bool(self.running) or self.stream is not None


class McpSessions:
    """All of them, the one that was used longest ago first. `over` hears of each once, when it is forgotten."""

    def __init__(self, *, most: int = MOST, over: Callable[[Handshake], object] = _nothing) -> None:
        self._most = most
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._known: OrderedDict[str, Handshake] = OrderedDict()
        self._looking: asyncio.TimerHandle | None = None

    def open(self, owner: Hashable, client: Client) -> Handshake:
        """A new one."""
        self._drop_idle()
        while len(self._known) >= self._most:
            self.end(next(iter(self._known.values())))
        handshake = Handshake(owner, client)
        self._known[handshake.id] = handshake
        handshake.used_at = self._loop.time()
        self._look_later()
        return handshake

    def find(self, id: str, owner: Hashable) -> Handshake | None:  # noqa: A002  the protocol's own name
        """The one of this id; None where there is none, or where it is somebody else's."""
        self._drop_idle()
        handshake = self._known.get(id)
        if handshake is None or handshake.owner != owner:
            return None
        self._use(handshake)
        return handshake

    def end(self, handshake: Handshake) -> None:
        """Forget one, and call off what runs for it."""
        if self._known.pop(handshake.id, None) is not None:
            handshake.end()
            self._over(handshake)

    def stop(self) -> None:
        """Look after nobody any more."""
        if self._looking is not None:
            self._looking.cancel()

    def _use(self, handshake: Handshake) -> None:
        handshake.used_at = self._loop.time()
        self._known.move_to_end(handshake.id)

    def _drop_idle(self) -> None:
        before = self._loop.time() - IDLE_S
        while self._known:
            oldest = next(iter(self._known.values()))
            if oldest.used_at > before:
                return
            if oldest.busy:
                self._use(oldest)
            else:
                self.end(oldest)

    def _look_later(self) -> None:
        """Look again when the first may be over, also where nobody comes any more."""
        if self._looking is None and self._known:
            oldest = next(iter(self._known.values()))
            self._looking = self._loop.call_at(oldest.used_at + IDLE_S, self._look)

    def _look(self) -> None:
        self._looking = None
        self._drop_idle()
        self._look_later()


class Serving:
    """Costs nothing before the first client comes; then `load` gives what speaks the protocol.

    `over` closes what was opened for a client that has introduced itself and is forgotten.
    """

    def __init__(self, load: Callable[[], McpServerEndpoint], over: Callable[[Handshake], object]) -> None:
        self._load = load
        self._speaker: asyncio.Future[McpServerEndpoint] | None = None
        self.announcer: ListChangedNotifier = ListChangedNotifier()
        self.handshakes: McpSessions = McpSessions(over=over)

    async def speaker(self) -> McpServerEndpoint:
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
