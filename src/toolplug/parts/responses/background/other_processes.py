"""The processes that make background responses: which of them run, and what another one has stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

from toolplug.cluster.followed import Follower
from toolplug.cluster.processes import Processes
from toolplug.errors import StoreError
from toolplug.stores.store import Change, Store

LEASES = "response-lease/"
LEASE_S = 60.0
RENEWED_S = 20.0
MISSING_S = 6.0
"""Seconds after which a process that is not there has ended: all are missing for a moment after the store was."""

_STOPPED = b"stopped"
_LOG = logging.getLogger("toolplug.responses")


class MakerLeases:
    """The leases of the responses in progress, each a record with the `Store.id` of the process that makes it.

    In a store that several processes share, a process hears that another one has stopped a response of its own:
    `stopped` is called with the ids of responses that may have been.
    """

    def __init__(
        self, store: Store, processes: Processes | None, stopped: Callable[[Collection[str]], Awaitable[None]]
    ) -> None:
        self.shared: bool = processes is not None and processes.joined
        self._store = store
        self._processes = processes
        self._stopped = stopped
        self._own: set[str] = set()
        self._seen: dict[str, float] = {}
        self._looked_at = 0.0
        self._follower: Follower | None = None
        if processes is not None and self.shared:
            processes.listen(self._look)

    async def take(self, response: str) -> None:
        """Write the lease of a response, which expires after `LEASE_S`. Raises `StoreError`."""
        if self.shared and self._follower is None:
            self._follower = Follower(self._store, LEASES, self._hear, self._look)
            try:
                await self._follower.start()
            except BaseException:
                self._follower = None
                raise
        await self._renew(response)

    @asynccontextmanager
    async def hold_lease(self, response: str) -> AsyncGenerator[None]:
        """Renew a lease while the context is open; that of a process that has died expires."""
        self._own.add(response)
        beating = asyncio.create_task(self._beat(response), name="toolplug-response-lease")
        try:
            yield
        finally:
            self._own.discard(response)
            beating.cancel()
            try:
                await self._store.commit(LEASES + response, None)
            except StoreError as error:
                _LOG.error("the lease of a response is not given back, and ends by itself: %s", error)

    async def lives(self, response: str) -> bool:
        """Return whether a process is making the response. Raises `StoreError`."""
        record = await self._store.read(LEASES + response)
        return record is not None and self._runs(record.value.decode())

    async def stop(self, response: str) -> None:
        """Let the process that makes the response know that it is cancelled or deleted. Raises `StoreError`."""
        record = await self._store.read(LEASES + response) if self.shared else None
        if record is not None:
            await self._store.extend(LEASES + response, events=[_STOPPED], to=record.value.decode() or None)

    async def aclose(self) -> None:
        """Hear of nothing any longer."""
        if self._follower is not None:
            await self._follower.aclose()

    def _runs(self, maker: str) -> bool:
        """Return False for a process that was missing at every look of the last `MISSING_S`."""
        now = asyncio.get_running_loop().time()
        if not self.shared or maker in ("", self._store.id) or now - self._looked_at > MISSING_S:
            return True
        return now - self._seen.setdefault(maker, now) < MISSING_S

    async def _renew(self, response: str) -> None:
        await self._store.commit(LEASES + response, self._store.id.encode(), ttl_s=LEASE_S, to=self._store.id)

    async def _beat(self, response: str) -> None:
        while True:
            await asyncio.sleep(RENEWED_S)
            try:
                await self._renew(response)
            except StoreError as error:
                _LOG.error("the lease of a response is not renewed: %s", error)

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._looked_at > MISSING_S:  # the store was away, and with it the leases of all
            self._seen = dict.fromkeys(self._seen, now)
        self._looked_at = now
        if self._processes is not None:
            self._seen |= {name.partition(".")[0]: now for name in self._processes.others}
        if self._own:
            await self._stopped(tuple(self._own))

    async def _hear(self, change: Change) -> None:
        response = change.key.removeprefix(LEASES)
        if response in self._own and (change.events is None or change.events):
            await self._stopped((response,))
