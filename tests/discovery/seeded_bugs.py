"""Bugs that the small world must show. Each is a few lines that the service could have been written with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from toolplug.parts.mcp.discovery.record import KnownServer, Listing, ServerState
from toolplug.parts.mcp.discovery.service import Discovery
from toolplug.parts.mcp.discovery.watched_server import WatchedServer
from toolplug.stores.store import Store


class _GoesOnWhenForgotten(WatchedServer):
    """A listing that is under way when its server is forgotten or edited is kept all the same."""

    def cancel(self) -> None:
        self.settled.set()

    async def stop(self) -> None:
        super().cancel()
        await super().stop()


class _ListsBesideOneThatHangs(WatchedServer):
    """A listing that was given up and goes on is not waited for."""

    async def _last_has_ended(self) -> bool:
        return True


class _LosesToolsByFailure(WatchedServer):
    """A failed listing is one that found nothing."""

    def outcome(self, kept: ServerState, result: Listing | str) -> ServerState:
        after = super().outcome(kept, result)
        if after.record.status == "success":
            return after
        return replace(after, record=replace(after.record, tools=(), stale=False), body=b"")


class _HidesThatToolsAreOld(WatchedServer):
    """The tools of the last configuration stand for those of the next."""

    def _begin(self, listing: str, kept: ServerState) -> ServerState | None:
        after = super()._begin(listing, kept)
        return after and replace(after, record=replace(after.record, stale=False))


class _BelievesTheDead(WatchedServer):
    """Whatever another process began, it is about."""

    def _lease_left_s(self, kept: ServerState) -> float:
        if not kept.attempt or kept.attempt.startswith(self._services.process):
            return 0
        return 1_000_000


class _TakesTheWordOfOthers(WatchedServer):
    """What another process writes of another configuration is taken for this one's."""

    def adopt(self, kept: ServerState) -> None:
        self._own = kept
        self._owed = self._owed and kept.record.status == "discovering"
        self._show()


def _with(watched: type[WatchedServer]) -> Callable[[Store], Discovery]:
    """A service whose servers are watched by this class."""

    class Buggy(Discovery):
        def know(self, server: KnownServer) -> None:
            super().know(server)
            self._known[server.name].__class__ = watched

    return lambda store: Buggy(store, luck=lambda: 0.0)


SEEDED = {
    "a result that comes too late": _with(_GoesOnWhenForgotten),
    "two listings at once": _with(_ListsBesideOneThatHangs),
    "tools that a failure loses": _with(_LosesToolsByFailure),
    "old tools that are not stale": _with(_HidesThatToolsAreOld),
    "a dead process that is believed for ever": _with(_BelievesTheDead),
    "a record of another configuration": _with(_TakesTheWordOfOthers),
}
"""What is wrong → a service that does it."""
