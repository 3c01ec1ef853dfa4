"""A server's tools for one session, over a connection that nobody else has.

Until that connection is open, what is known of the server is listed; then what the connection itself lists. A server
may show one session what it does not show another, so that such a list stays in its session. Only the first list of a
connection, read before any call, is what everybody would get, and may be handed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from toolplug.catalog.catalog import EMPTY_CATALOG
from toolplug.catalog.plan import Series
from toolplug.discovery.record import FoundTool
from toolplug.execution.live import Joint, LiveCatalog
from toolplug.mcp.connection import Connect
from toolplug.mcp.endings import Endings
from toolplug.mcp.link import Link
from toolplug.mcp.own_listing import Heard, OwnListing
from toolplug.mcp.plans import Planner, over
from toolplug.mcp.reach import Reach
from toolplug.mcp.relisting import Pause
from toolplug.mcp.server import Server


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """What every session of a server starts from, as it is now.

    `tools` are the plans of what is known, `accepted` the digests of pinned definitions by name; None: not pinned.
    """

    server: Server
    planner: Planner
    tools: LiveCatalog
    accepted: Mapping[str, str] | None


class SessionTools(Joint):
    """A tool executor that starts its server at its first call. `aclose` ends both, once."""

    def __init__(
        self,
        unknown: Series,
        connect: Connect,
        endings: Endings,
        known: Known,
        *,
        first: Heard,
        closed: Callable[[SessionTools], None],
        pause: Pause = asyncio.sleep,
    ) -> None:
        super().__init__(unknown)
        self._connect = connect
        self._endings = endings
        self._first = first
        self._closed = closed
        self._pause = pause
        self._live = LiveCatalog(unknown)
        self._is_closed = False
        self._known = known
        self._reach: Reach | None = None
        self._own: OwnListing | None = None
        self._open()

    def follow(self, known: Known) -> None:
        """Go by this from now on: the connection stays where it reaches the same server."""
        before, self._known = self._known, known
        if self._is_closed:
            return
        if not known.server.enabled or known.server.transport != before.server.transport:
            self._leave()
        if self._reach is None:
            self._open()
        else:
            self._show(anew=known.planner is not before.planner)

    async def aclose(self) -> None:
        """Take no more calls, list nothing, and end the server; calls that run are answered as if it were down."""
        if self._is_closed:
            return
        self._is_closed = True
        self._closed(self)
        self.join()
        if self._own is not None and self._reach is not None:
            self._own.stop()
            await self._reach.end()
            await self._own.aclose()

    def _open(self) -> None:
        """Be ready to start the server, where it is one that may be started."""
        server = self._known.server
        if not server.enabled:
            self.join()
            return
        own = self._own = OwnListing(server.name.id, first=self._first, changed=self._show, pause=self._pause)
        link = Link(server, self._connect, own.due, begin=own.begin)
        reach = self._reach = Reach(link)
        self.join(self._known.tools.view(lambda catalog: over(catalog, reach)))

    def _leave(self) -> None:
        """Let what runs end in the background."""
        reach, own = self._reach, self._own
        self._reach = self._own = None
        self._live.publish(EMPTY_CATALOG)
        if own is not None:
            own.stop()
            self._endings.begin(own.aclose())
        if reach is not None:
            reach.off()
            self._endings.begin(reach.retire(self._known.planner.drain_s))

    def _show(self, *, anew: bool = False) -> None:
        """List what the connection lists, once it has; `anew`: under new plans."""
        reach, own = self._reach, self._own
        if reach is None or own is None or own.tools is None or self._is_closed:
            return
        found = [self._checked(tool) for tool in own.tools]
        before = EMPTY_CATALOG if anew else self._live.catalog
        self._live.publish(self._known.planner.catalog(found, reach, before))
        self.join(self._live)

    def _checked(self, tool: FoundTool) -> FoundTool:
        """In quarantine where its definition is not the accepted one of a pinned server."""
        accepted = self._known.accepted
        quarantined = accepted is not None and accepted.get(tool.name) != tool.definition.ref.digest
        return tool if tool.quarantined == quarantined else replace(tool, quarantined=quarantined)
