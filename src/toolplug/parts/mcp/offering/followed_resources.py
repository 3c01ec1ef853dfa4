"""The resources of one server that clients follow, over a connection that is opened again when it is lost.

After a gap, in which an update may have been missed, each follower is notified once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from toolplug.errors import ToolError
from toolplug.parts.mcp.client.connection import BadAnswer, ServerConnection, ServerRefused
from toolplug.parts.mcp.client.connection_strategies import ConnectionStrategy, ServerDown

MOST = 1_000
"""Resources of one server that are followed at a time."""
FOLLOW_S = 10.0
"""How long a server may take to accept that a resource is followed."""
REFUSED_S = 60.0
"""Until a connection is asked again that has refused."""
_AGAIN_S = 1.0


class FollowedResources:
    """Follows each resource once for all its followers. `line` returns the present connection, None for none."""

    def __init__(self, line: Callable[[], ConnectionStrategy | None]) -> None:
        self._line = line
        self._told: dict[str, dict[object, Callable[[], None]]] = {}
        self._connection: ServerConnection | None = None
        self._stops: dict[str, Callable[[], None]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    async def follow(self, uri: str, told: Callable[[], None]) -> Callable[[], None]:
        """Implement `Follow`. Raises `ToolError` and `ServerDown`."""
        line = self._line()
        if line is None or self._closed:
            raise ToolError("its server is not enabled")
        if uri not in self._told and len(self._told) >= MOST:
            raise ToolError(f"{MOST} resources of its server are followed already")
        follower = object()
        self._told.setdefault(uri, {})[follower] = told
        stop = partial(self._stop, uri, follower)
        try:
            async with asyncio.timeout(FOLLOW_S):
                await line.ask(partial(self._follow_over, uri))
        except BaseException as error:
            stop()
            if isinstance(error, TimeoutError):
                raise ToolError(f"its server has not accepted it within {FOLLOW_S:g} s") from None
            if isinstance(error, ServerRefused | BadAnswer):
                raise ToolError(str(error) or "its server refuses it") from None
            raise
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep(), name="toolplug-mcp-followed")
        return stop

    async def aclose(self) -> None:
        """Follow nothing any longer."""
        self._closed = True
        self._told.clear()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})

    def _stop(self, uri: str, follower: object) -> None:
        followers = self._told.get(uri, {})
        followers.pop(follower, None)
        if not followers:
            self._told.pop(uri, None)
            self._stops.pop(uri, _nothing)()
        if not self._told and self._keeper is not None:
            self._keeper.cancel()

    def _on_update(self, uri: str) -> None:
        for told in tuple(self._told.get(uri, {}).values()):
            told()

    async def _follow_over(self, uri: str, connection: ServerConnection) -> None:
        if connection is not self._connection:
            self._connection, self._stops = connection, {}
        if uri in self._stops:
            return
        self._stops[uri] = _nothing
        try:
            stop = await connection.follow(uri, partial(self._on_update, uri))
        except BaseException:
            self._stops.pop(uri, None)
            raise
        if uri in self._stops and connection is self._connection:
            self._stops[uri] = stop
        else:  # nobody follows it any longer
            stop()

    async def _keep(self) -> None:
        """Follow everything again over each new connection, until nothing is followed."""
        while self._told:
            pause_s = _AGAIN_S
            try:
                line = self._line()
                if line is not None:
                    await (await line.ask(self._follow_missing)).wait_closed()
            except ServerDown as error:
                pause_s = error.retry_after_s or _AGAIN_S
            except (ServerRefused, BadAnswer):
                pause_s = REFUSED_S
            await asyncio.sleep(pause_s)

    async def _follow_missing(self, connection: ServerConnection) -> ServerConnection:
        for uri in tuple(self._told):
            if connection is not self._connection or uri not in self._stops:
                await self._follow_over(uri, connection)
                self._on_update(uri)
        return connection


def _nothing() -> None:
    """Stop nothing."""
