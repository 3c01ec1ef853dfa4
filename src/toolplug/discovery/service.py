"""What servers list, found out in the background and kept; reading it never asks a server or the store."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.discovery.record import DiscoveryRecord, KnownServer, ServerName, ServerState, Status, accepted
from toolplug.discovery.record_store import Records
from toolplug.discovery.watched_server import DiscoveryServices, FairSemaphore, Watched
from toolplug.execution.executor import Unsubscribe
from toolplug.stores.change_log import PAUSE_S
from toolplug.stores.store import Store

GRACE_S = 5.0
"""So long a listing that is given up at the end may take to clean up."""

_LOG = logging.getLogger("toolplug.discovery")

Listener = Callable[[ServerName, DiscoveryRecord], None]


class ServerMetrics(Collector):
    """What discovery knows, and how it went. Servers that tenants added are counted together, under no name."""

    def __init__(
        self,
        records: Callable[[], Iterable[DiscoveryRecord]],
        discoveries: Mapping[tuple[str, str], int],
        namespace: str,
    ) -> None:
        """`records` returns that of every server; `discoveries` counts those that ended, by server and outcome."""
        self._records = records
        self._discoveries = discoveries
        self._prefix = f"{namespace}_mcp"

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        records = tuple(self._records())
        servers = GaugeMetricFamily(
            f"{self._prefix}_servers", "MCP servers by the state of discovery.", labels=["status"]
        )
        states = Counter(record.status for record in records)
        for status in get_args(Status):
            servers.add_metric([status], states[status])
        yield servers
        stale = GaugeMetricFamily(f"{self._prefix}_servers_stale", "MCP servers whose tools are the last good ones.")
        stale.add_metric([], sum(record.stale for record in records))
        yield stale
        quarantined = GaugeMetricFamily(f"{self._prefix}_tools_quarantined", "Tools that wait to be accepted.")
        quarantined.add_metric([], sum(tool.quarantined for record in records for tool in record.tools))
        yield quarantined
        ended = CounterMetricFamily(
            f"{self._prefix}_discoveries", "Discoveries that ended, by outcome.", labels=["server", "outcome"]
        )
        for (server, outcome), count in tuple(self._discoveries.items()):
            ended.add_metric([server, outcome], count)
        yield ended

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names do not clash with a provider's, so nothing needs to be collected to find out."""
        return iter(())


class Discovery:
    """The discovery service of one process; used inside `async with`, on one event loop.

    A store that cannot answer costs no reader anything: the service goes on in memory and saves when it can. Any number
    of processes share a store: a server is listed by one of them at a time, and the others hear of it.
    """

    def __init__(
        self,
        store: Store,
        *,
        places: FairSemaphore | None = None,
        luck: Callable[[], float] = random.random,
        pause_s: float = PAUSE_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self._records = Records(store, self._changed, self._wanted, pause_s=pause_s)
        self._around = DiscoveryServices(
            records=self._records,
            places=places or FairSemaphore(),
            process=secrets.token_hex(8),
            luck=luck,
            told=self._told,
        )
        self._grace_s = grace_s
        self._known: dict[ServerName, Watched] = {}
        self._listeners: list[Listener] = []
        self._last_told: dict[ServerName, DiscoveryRecord] = {}

    async def __aenter__(self) -> Self:
        """Read what is kept. Raises `StoreError`."""
        await self._records.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give up what is under way; the records are again as they were before it."""
        known = [*self._known.values()]
        self._known.clear()
        await asyncio.gather(*(watched.stop() for watched in known))
        if listings := [*self._around.listings.values()]:
            await asyncio.wait(listings, timeout=self._grace_s)
        await self._records.aclose()

    def record(self, name: ServerName) -> DiscoveryRecord:
        """What is known of a server now, without waiting; the same object while nothing has changed."""
        watched = self._known.get(name)
        return self._records.kept(name).record if watched is None else watched.shown

    def watch(self, listener: Listener) -> Unsubscribe:
        """Hear of each changed record, also of those that other processes change; one that raises is logged."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def know(self, server: KnownServer) -> None:
        """A server as it is configured now.

        It is listed at once where its configuration has changed or it was never listed, and when its time has come
        where the last listing failed or was another process's that has died. A success is believed until somebody says
        `due`, or it is as old as `rediscover_s`.
        """
        before = self._known.get(server.name)
        if before is not None and before.server.config_hash == server.config_hash:
            before.configure(server)
            return
        if before is not None:
            before.cancel()
        watched = self._known[server.name] = Watched(server, self._around, before)
        watched.start()

    async def leave(self, name: ServerName) -> None:
        """Ask this server no more (it is disabled); what is under way leads to nothing, and the record stays."""
        watched = self._known.pop(name, None)
        if watched is not None:
            await watched.stop()
            self._told(name, self.record(name))

    async def forget(self, name: ServerName) -> None:
        """The server is no more: its record is deleted, and what is under way leads to nothing. Raises `StoreError`."""
        watched = self._known.pop(name, None)
        if watched is not None:
            watched.cancel()
        await self._records.delete(name)
        self._last_told.pop(name, None)

    def due(self, name: ServerName) -> None:
        """The list of this server may have changed, or somebody is about to need it: look again in the background.

        Asked often, it looks 300 ms after the first, and once a second at most; where the last listing failed, not
        before its time.
        """
        watched = self._known.get(name)
        if watched is not None:
            watched.due()

    async def discovered(self, name: ServerName, wait_s: float | None) -> DiscoveryRecord:
        """Begin a listing now, or join the one under way; the record when it has ended, or after so many seconds.

        The server is started anew for it, whether one runs or not.
        0 does not wait: the record says `discovering`. None waits for the end. Of an unknown server it is what is kept.
        """
        watched = self._known.get(name)
        if watched is None:
            return self.record(name)
        watched.ask()
        if wait_s != 0:
            try:
                async with asyncio.timeout(wait_s):
                    await self._settled(name)
            except TimeoutError:
                return self.record(name)
        return self.record(name)

    async def keep(self, name: ServerName, config_hash: str, tools: Sequence[object]) -> None:
        """A running server of this configuration lists these: the same as if a listing had brought them."""
        watched = self._known.get(name)
        if watched is None or watched.server.config_hash != config_hash:
            return
        listing = await watched.reader.read(tools, self._records.kept(name))

        def derive(kept: ServerState) -> ServerState | None:
            now = self._known.get(name)
            if now is None or now.server.config_hash != config_hash or kept.config_hash not in ("", config_hash):
                return None
            return now.outcome(now.base(kept), listing)

        await self._records.change(name, derive)

    async def accept(self, name: ServerName, tools: Collection[str] | None) -> DiscoveryRecord:
        """Accept the quarantined definitions of these tools as they are listed now; None: of all.

        Names that are not in quarantine are passed over. Raises `StoreError`, and then nothing has changed.
        """
        await self._records.change(name, lambda kept: accepted(kept, tools) if kept.pins else None, must_save=True)
        return self.record(name)

    async def _settled(self, name: ServerName) -> None:
        """Wait until nothing is under way, also where the server is configured anew meanwhile."""
        while (watched := self._known.get(name)) is not None and watched.shown.status == "discovering":
            await watched.settled.wait()

    def _changed(self, name: ServerName, kept: ServerState) -> None:
        watched = self._known.get(name)
        if watched is None:
            self._told(name, kept.record)
        else:
            watched.adopt(kept)

    def _wanted(self, name: ServerName, kept: ServerState) -> bool:
        watched = self._known.get(name)
        return watched is None or watched.server.config_hash == kept.config_hash

    def _told(self, name: ServerName, record: DiscoveryRecord) -> None:
        """Tell everybody, unless it is what they were told last."""
        if self._last_told.get(name) == record:
            return
        self._last_told[name] = record
        for listener in [*self._listeners]:
            try:
                listener(name, record)
            except Exception:  # noqa: BLE001  a named boundary: one listener costs no other
                _LOG.exception("a listener of discovery failed")
