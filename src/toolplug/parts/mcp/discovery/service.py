"""The discovery service: lists MCP servers in the background; reading a result asks neither server nor store."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

from toolplug.execution.executor import Unsubscribe
from toolplug.parts.mcp.discovery.record import (
    DiscoveryRecord,
    KnownServer,
    ServerName,
    ServerState,
    accept_definitions,
)
from toolplug.parts.mcp.discovery.record_store import Records, record_key
from toolplug.parts.mcp.discovery.watched_server import DiscoveryServices, FairSemaphore, WatchedServer
from toolplug.stores.store import Store

GRACE_S = 5.0
"""How long a cancelled listing may clean up when the service is closed."""

_LOG = logging.getLogger("toolplug.discovery")

Listener = Callable[[ServerName, DiscoveryRecord], None]


class Discovery:
    """The discovery service of one process; used inside `async with`, on one event loop. `records` are those it stores.

    While the store fails, the service works in memory and saves later. Any number of processes share a store: one of
    them lists a server at a time, and the others take over the result.
    """

    def __init__(self, store: Store, *, luck: Callable[[], float] = random.random) -> None:
        self.records: Records = Records(store, self._on_change, self._wants)
        self._services = DiscoveryServices(
            records=self.records,
            places=FairSemaphore(),
            process=secrets.token_hex(8),
            luck=luck,
            notify=self._notify,
        )
        self._known: dict[ServerName, WatchedServer] = {}
        self._listeners: list[Listener] = []
        self._last_notified: dict[ServerName, DiscoveryRecord] = {}

    async def __aenter__(self) -> Self:
        """Read the stored records. Raises `StoreError`."""
        await self.records.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel the listings in progress and restore the records from before them."""
        known = [*self._known.values()]
        self._known.clear()
        try:
            await asyncio.gather(*(watched.stop() for watched in known))
            if listings := [*self._services.listings.values()]:
                await asyncio.wait(listings, timeout=GRACE_S)
        finally:
            await self.records.aclose()

    def record(self, name: ServerName) -> DiscoveryRecord:
        """Return the record of a server without waiting; the same object until something changes."""
        watched = self._known.get(name)
        return self.records.state_of(name).record if watched is None else watched.shown

    @staticmethod
    def key(name: ServerName) -> str:
        """Return the key of a server's record in the store."""
        return record_key(name)

    def watch(self, listener: Listener) -> Unsubscribe:
        """Call the listener for each changed record, also of other processes; its exceptions are logged."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def know(self, server: KnownServer) -> None:
        """Discover this server, as it is configured now, in the background.

        It is listed now if its configuration has changed or it was never listed, after the backoff if the last listing
        failed, and after a lease if another process that lists it has died. A success holds until `due` is called or it
        is `rediscover_s` old.
        """
        before = self._known.get(server.name)
        if before is not None and before.server.config_hash == server.config_hash:
            before.configure(server)
            return
        if before is not None:
            before.cancel()
        watched = self._known[server.name] = WatchedServer(server, self._services, before)
        watched.start()

    def leave(self, name: ServerName) -> Coroutine[None, None, None]:
        """Stop discovering a server, for one that is disabled; a listing in progress is dropped, the record stays.

        It is left before this returns: who enables it at once discovers it again. What is returned ends the listing.
        """
        return self._stop(name, self._known.pop(name, None))

    async def _stop(self, name: ServerName, watched: WatchedServer | None) -> None:
        if watched is not None:
            await watched.stop()
            self._notify(name, self.record(name))

    async def forget(self, name: ServerName) -> None:
        """Stop discovering a removed server, and delete its record. Raises `StoreError`."""
        watched = self._known.pop(name, None)
        if watched is not None:
            watched.cancel()
        await self.records.delete(name)
        self._last_notified.pop(name, None)

    def due(self, name: ServerName, *, unless_listed_s: float = 0.0) -> None:
        """List a server again in the background, since its list may have changed or is about to be needed.

        Repeated calls are debounced: it is listed 300 ms after the first, at most once a second, and after a failure
        not before the end of the backoff. Nothing is due if a process has listed it in the last `unless_listed_s`
        seconds.
        """
        watched = self._known.get(name)
        if watched is not None and not watched.listed_since(unless_listed_s):
            watched.due()

    async def wait_for_listing(self, name: ServerName, wait_s: float | None) -> DiscoveryRecord:
        """Begin a listing in a fresh process, or join the one in progress, and return the record.

        Waits at most `wait_s` seconds for the end, None: without a limit; before the end the record is `discovering`.
        Of a server that is not known it is the stored record.
        """
        watched = self._known.get(name)
        if watched is not None:
            watched.ask()
            if wait_s != 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        # The server may be configured again in the meantime.
                        while (now := self._known.get(name)) is not None and now.shown.status == "discovering":
                            await now.settled.wait()
        return self.record(name)

    async def keep(self, name: ServerName, config_hash: str, tools: Sequence[object]) -> None:
        """Record what a running server of this configuration listed, as the result of a listing."""
        watched = self._known.get(name)
        if watched is None or watched.server.config_hash != config_hash:
            return
        listing = await watched.reader.read(tools, self.records.state_of(name))

        def derive(kept: ServerState) -> ServerState | None:
            now = self._known.get(name)
            if now is None or now.server.config_hash != config_hash or kept.config_hash not in ("", config_hash):
                return None
            return now.outcome(replace(now.base(kept), began_at=0.0), listing)

        await self.records.change(name, derive)

    async def accept(self, name: ServerName, tools: Collection[str] | None) -> DiscoveryRecord:
        """Accept the quarantined definitions of these tools as they are listed now; None: of all.

        Names that are not quarantined are ignored. Raises `StoreError`; then nothing has changed.
        """
        await self.records.change(
            name, lambda kept: accept_definitions(kept, tools) if kept.pins else None, must_save=True
        )
        return self.record(name)

    def _on_change(self, name: ServerName, kept: ServerState) -> None:
        watched = self._known.get(name)
        if watched is None:
            self._notify(name, kept.record)
        else:
            watched.adopt(kept)

    def _wants(self, name: ServerName, kept: ServerState) -> bool:
        watched = self._known.get(name)
        return watched is None or watched.server.config_hash == kept.config_hash

    def _notify(self, name: ServerName, record: DiscoveryRecord) -> None:
        """Call every listener, unless the record is equal to the last one."""
        if self._last_notified.get(name) == record:
            return
        self._last_notified[name] = record
        for listener in [*self._listeners]:
            try:
                listener(name, record)
            except Exception:  # noqa: BLE001  a named boundary: one listener costs no other
                _LOG.exception("a listener of discovery failed")
