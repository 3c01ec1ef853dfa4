"""The resources that one client follows, and their updates that it has not been notified of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolplug.catalog.offering import Offered, Offering
from toolplug.errors import ToolError

MOST = 256
"""Resources that one client follows at a time."""


class ResourceSubscriptions:
    """The subscriptions of one client; several updates of a resource that it has not taken are one."""

    def __init__(self) -> None:
        self._followed: dict[str, tuple[Offered, Callable[[], None]]] = {}
        self._updated: dict[str, None] = {}
        self._changing = asyncio.Lock()
        self._closed = False
        self.wake: Callable[[], None] | None = None
        """Called at each update."""

    async def add(self, uri: str, resource: Offered) -> None:
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

    def remove(self, uri: str) -> None:
        """Stop following a resource; ignore one that is not followed."""
        _, stop = self._followed.pop(uri, (None, _nothing))
        self._updated.pop(uri, None)
        stop()

    def close(self) -> None:
        """Stop following every resource."""
        self._closed = True
        for uri in tuple(self._followed):
            self.remove(uri)

    def taken(self, offering: Offering) -> tuple[str, ...]:
        """Return the updated resources, once, without those that the client may no longer read by its offering."""
        updated, self._updated = self._updated, {}
        return tuple(uri for uri in updated if uri in self._followed and self._is_in(offering, uri))

    @property
    def pending(self) -> bool:
        """True if there are updates to take."""
        return bool(self._updated)

    def _is_in(self, offering: Offering, uri: str) -> bool:
        resource, _ = self._followed[uri]
        entries = (offering.resources.get(resource.key), offering.templates.get(resource.key))
        return any(found is not None and found.source == resource.source for found in entries)

    def _update(self, uri: str) -> None:
        if uri in self._followed:
            self._updated[uri] = None
            if self.wake is not None:
                self.wake()


def _nothing() -> None:
    """Do nothing to stop following a resource whose source notifies of nothing."""
