"""The resources that one client follows, and their updates that it has not been notified of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolplug.catalog.offering import OfferedEntry, Offering
from toolplug.errors import ToolError

MOST = 256
"""Resources that one client follows at a time."""


class ResourceSubscriptions:
    """The subscriptions of one client; several updates of a resource that it has not taken are one."""

    def __init__(self) -> None:
        self._followed: dict[str, tuple[OfferedEntry, Callable[[], None]]] = {}
        self._updated: dict[str, None] = {}
        self._changing = asyncio.Lock()
        self._closed = False
        self._elsewhere: dict[str, tuple[str, str]] = {}
        self.wake: Callable[[], None] | None = None
        """Called at each update; None while no stream of the client is open in this process."""
        self.pass_on: Callable[[str, OfferedEntry], None] | None = None
        """Called at each update without a stream here, where another process may have one."""
        self.left: Callable[[str], None] | None = None
        """Called when the client stops following a resource, which another process may follow for it."""

    async def add(self, uri: str, resource: OfferedEntry) -> None:
        """Follow the resource of this URI, which this entry of the client's offering is or matches.

        Raises `ToolError` if its source cannot notify of updates or the client follows too many, and `ToolUnavailable`.
        """
        async with self._changing:
            if uri in self._followed or self._closed:
                return
            if len(self._followed) >= MOST:
                raise ToolError(f"{MOST} resources are followed already; unsubscribe from one first")
            stop = _nothing if resource.follow is None else await resource.follow(uri, lambda: self._update(uri))
            self._followed[uri] = (resource, stop)
            if self._closed:
                self.close()

    def leave(self, uri: str) -> None:
        """Stop following a resource in all processes."""
        self.remove(uri)
        if self.left is not None:
            self.left(uri)

    def updated_elsewhere(self, uri: str, key: str, source: str) -> None:
        """Note an update of a resource that another process follows, by its entry's key and source."""
        self._elsewhere[uri] = key, source
        self._note(uri)

    def remove(self, uri: str) -> None:
        """Stop following a resource; ignore one that is not followed."""
        self._elsewhere.pop(uri, None)
        _, stop = self._followed.pop(uri, (None, _nothing))
        self._updated.pop(uri, None)
        stop()

    def close(self) -> None:
        """Stop following every resource."""
        self._closed = True
        for uri in tuple(self._followed):
            self.remove(uri)

    def take_updates(self, offering: Offering) -> tuple[str, ...]:
        """Return the updated resources, once, without those that the client may no longer read by its offering."""
        updated, self._updated = self._updated, {}
        return tuple(uri for uri in updated if self._is_in(offering, uri))

    @property
    def pending(self) -> bool:
        """True if there are updates to take."""
        return bool(self._updated)

    def _is_in(self, offering: Offering, uri: str) -> bool:
        followed = self._followed.get(uri)
        key, source = self._elsewhere.get(uri, ("", "")) if followed is None else (followed[0].key, followed[0].source)
        entries = (offering.resources.get(key), offering.templates.get(key))
        return any(found is not None and found.source == source for found in entries)

    def _update(self, uri: str) -> None:
        followed = self._followed.get(uri)
        if followed is None:
            return
        if self.wake is None and self.pass_on is not None:
            self.pass_on(uri, followed[0])
        else:
            self._note(uri)

    def _note(self, uri: str) -> None:
        self._updated[uri] = None
        if self.wake is not None:
            self.wake()


def _nothing() -> None:
    """Do nothing to stop following a resource whose source notifies of nothing."""
