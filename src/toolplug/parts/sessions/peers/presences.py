"""The plugin streams of a session in all processes, as one volatile record `~presence/CODE`.

The record changes when a stream of the plugin is opened or ends. A stream lives as long as the process that has it
runs; the newest one that lives gets all requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import orjson

from toolplug.cluster.processes import Processes
from toolplug.errors import StoreConflict
from toolplug.parts.sessions.tools.session_tool import PluginStatus
from toolplug.stores.store import VOLATILE, Store

PRESENCES = f"{VOLATILE}presence/"
_LOG = logging.getLogger("toolplug.sessions")
_KEPT_S = 172_800.0
"""Seconds after the last change; the process of a stream that is open for longer writes it again."""


class OpenStream(NamedTuple):
    """One stream of a plugin: its id, and the name of the process that has it."""

    id: str
    process: str


class StoredPresence(NamedTuple):
    """The streams, the oldest first, the time of the store at which the last one ended, and the status that was logged.

    `revision` is that of the record, 0 for none. `turns` counts how often another stream became
    the newest, which gets the requests.
    """

    revision: int = 0
    streams: tuple[OpenStream, ...] = ()
    vacant_at: float | None = None
    reported: PluginStatus | None = None
    turns: int = 0


class PresenceRecords:
    """The presence records in a store that several processes share."""

    def __init__(self, store: Store, processes: Processes) -> None:
        self._store = store
        self._processes = processes

    async def read(self, code: str) -> StoredPresence:
        """Return the presence of a session's plugin. Raises `StoreError`."""
        record = await self._store.read(PRESENCES + code)
        return StoredPresence() if record is None else read_presence(record.value, record.revision)

    def live(self, presence: StoredPresence) -> tuple[OpenStream, ...]:
        """Return the streams whose processes run, the oldest first."""
        return tuple(stream for stream in presence.streams if self._processes.runs(stream.process))

    def own(self, stream: OpenStream) -> bool:
        """Return True for a stream of this process, also one of a name that it no longer has."""
        return stream.process.partition(".")[0] == self._processes.name.partition(".")[0]

    async def set_streams(self, code: str, local: tuple[str, ...]) -> StoredPresence:
        """Make these the streams of this process, in their order, and return the presence. Raises `StoreError`."""

        def change(now: StoredPresence) -> StoredPresence:
            live = self.live(now)
            known = {stream.id for stream in live}
            streams = [stream for stream in live if not self.own(stream) or stream.id in local]
            streams += [OpenStream(item, self._processes.name) for item in local if item not in known]
            vacant_at = None
            if not streams:
                vacant_at = now.vacant_at or self._store.now()
            turns = now.turns + (bool(streams) and streams[-1:] != list(now.streams[-1:]))
            return now._replace(streams=tuple(streams), vacant_at=vacant_at, turns=turns)

        return (await self._change(code, change))[0]

    async def report(self, code: str, status: PluginStatus) -> tuple[StoredPresence, bool]:
        """Note that this status is to be logged; True if it is for this process to log it. Raises `StoreError`.

        Streams of processes that have ended are removed.
        """

        def change(now: StoredPresence) -> StoredPresence:
            live = self.live(now)
            if bool(live) != (status == "attached"):
                return now  # it is no longer so
            return now._replace(streams=live, reported=status)

        return await self._change(code, change)

    async def remove(self, code: str) -> None:
        """Remove the presence of a session that is over. Raises `StoreError`."""
        await self._store.commit(PRESENCES + code, None)

    async def _change(
        self, code: str, change: Callable[[StoredPresence], StoredPresence]
    ) -> tuple[StoredPresence, bool]:
        """Change the record by compare-and-swap; return it, and whether it was reported otherwise before."""
        while True:
            before = await self.read(code)
            after = change(before)
            if after == before:
                return before, False
            kept = after._asdict() | {"streams": [[*stream] for stream in after.streams]}
            del kept["revision"]  # which the store counts itself
            key, value = PRESENCES + code, orjson.dumps(kept)
            try:
                revision = await self._store.commit(key, value, expected=before.revision, ttl_s=_KEPT_S)
            except StoreConflict:
                continue
            return after._replace(revision=revision), after.reported != before.reported


def read_presence(value: bytes, revision: int) -> StoredPresence:
    """Return the presence in a record; that of no application if it is damaged, which its next sign replaces."""
    try:
        kept = orjson.loads(value)
        streams = tuple(OpenStream(stream, process) for stream, process in kept["streams"])
        return StoredPresence(revision, streams, kept["vacant_at"], kept["reported"], kept.get("turns", 0))
    except (ValueError, KeyError, TypeError) as error:
        _LOG.error("the record of a session's presence cannot be read: %r", error)
        return StoredPresence(revision)
