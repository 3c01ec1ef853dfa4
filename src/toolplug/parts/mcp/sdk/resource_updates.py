"""The resources that are followed over one SDK session, in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolplug.parts.mcp.client.connection import ServerRefused
from toolplug.parts.mcp.client.connection_strategies import Restarts

NOT_OFFERED = "its server does not notify of updates"


class ResourceUpdates:
    """Follows resources with `resources/subscribe`, or in 2026-07-28 with a stream for each."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._told: dict[str, Callable[[], None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def notify(self, uri: str) -> None:
        """Call the function of this resource, or of those that it is a part of."""
        for followed, told in tuple(self._told.items()):
            if uri == followed or uri.startswith(f"{followed.rstrip('/')}/"):
                told()

    async def follow(self, uri: str, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` at each update, until the function that this returns is called.

        Raises `MCPError` and `ValidationError` of the session, and `ServerRefused`.
        """
        capabilities = self._session.server_capabilities
        resources = None if capabilities is None else capabilities.resources
        if resources is None or not resources.subscribe:
            raise ServerRefused(types.METHOD_NOT_FOUND, NOT_OFFERED)
        if self._session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return await self._start_listening(uri, told)
        self._told[uri] = told
        try:
            request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
            await self._session.send_request(request, types.EmptyResult)
        except BaseException:
            self._told.pop(uri, None)
            raise

        def stop() -> None:
            if self._told.pop(uri, None) is not None:
                self._start(self._unsubscribe(uri))

        return stop

    async def aclose(self) -> None:
        """Follow nothing any longer."""
        self._told.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _unsubscribe(self, uri: str) -> None:
        try:
            request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
            await self._session.send_request(request, types.EmptyResult)
        except (MCPError, ValidationError):
            return  # the server may still notify; its notifications are dropped

    async def _start_listening(self, uri: str, told: Callable[[], None]) -> Callable[[], None]:
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = self._start(self._listen(uri, told, accepted))
        await asyncio.wait({task, accepted}, return_when=asyncio.FIRST_COMPLETED)
        if not accepted.done():
            task.cancel()
            raise ServerRefused(types.METHOD_NOT_FOUND, NOT_OFFERED)

        def stop() -> None:
            task.cancel()

        return stop

    async def _listen(self, uri: str, told: Callable[[], None], accepted: asyncio.Future[None]) -> None:
        restarts = Restarts()
        while True:
            try:
                async with listen(self._session, resource_subscriptions=[uri]) as subscription:
                    if not subscription.honored.resource_subscriptions:
                        return
                    if accepted.done():
                        told()  # an update may have been missed in the gap
                    else:
                        accepted.set_result(None)
                    async for _ in subscription:
                        told()
            except (MCPError, SubscriptionLost):
                if not accepted.done():
                    return
            restarts.record_failure()
            await asyncio.sleep(restarts.pause_s())

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="toolplug-mcp-resource-updates")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
