"""The discovery records of all servers: read from memory, saved in the store under `discovery/`, and shared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from toolplug.cluster.followed import PAUSE_S, Follower
from toolplug.errors import StoreConflict, StoreError, StoreRefused
from toolplug.parts.mcp.discovery.listing import read_record, record_bytes
from toolplug.parts.mcp.discovery.record import NOTHING, ServerName, ServerState, with_newer_tools
from toolplug.stores.store import Change, Record, Store, every_key, name_digest

PREFIX = "discovery/"

_UNREAD = -1
"""The revision of an entry that must be read again; no record has it."""
_LOG = logging.getLogger("toolplug.discovery")

Derive = Callable[[ServerState], ServerState | None]
"""Returns the new state for the present one, None to leave it; called again if another process has written first."""


def record_key(name: ServerName) -> str:
    """Return the key of a server's record: a hash, since a tenant's name may hold any character."""
    return PREFIX + name_digest(name.tenant, name.id)


@dataclass(slots=True, eq=False)
class _ServerEntry:
    """One record as this process has it; `revision` is the last known one of the store, 0 for none.

    An `unsaved` entry is newer than the store's record.
    """

    name: ServerName
    kept: ServerState = NOTHING
    revision: int = 0
    unsaved: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Records:
    """Reads records from memory, writes them by compare-and-swap, and follows the writes of other processes.

    `changed(name, kept)` is called for each change in memory, in order. `wanted(name, kept)` returns True if a
    state that could not be saved should still be saved: its configuration has not been replaced since.
    """

    def __init__(
        self,
        store: Store,
        changed: Callable[[ServerName, ServerState], None],
        wanted: Callable[[ServerName, ServerState], bool],
    ) -> None:
        self._store = store
        self._changed = changed
        self._wanted = wanted
        self._entries: dict[str, _ServerEntry] = {}
        self.prefix: str = PREFIX
        self._follower = Follower(store, PREFIX, self._hear, self.look)
        self._saver: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Read every record, and follow changes until `aclose`. Raises `StoreError`."""
        await self._follower.start()

    async def aclose(self) -> None:
        """Stop following; states that could not be saved are lost."""
        self._closed = True
        if self._saver is not None:
            self._saver.cancel()
            await asyncio.wait({self._saver})
        await self._follower.aclose()

    async def fresh(self, keys: Iterable[str]) -> None:
        """Take over these records as they are now in the store. Raises `StoreError`."""
        for key in keys:
            await self._look_again(key)

    def now(self) -> float:
        """Return the time on the store's clock, in seconds."""
        return self._store.now()

    def state_of(self, name: ServerName) -> ServerState:
        """Return the state of a server; `NOTHING` for an unknown one."""
        entry = self._entries.get(record_key(name))
        return NOTHING if entry is None else entry.kept

    async def change(self, name: ServerName, derive: Derive, *, must_save: bool = False) -> bool:
        """Change the state of a server; return False if `derive` leaves it.

        A failing store only delays the saving; with `must_save`, `StoreError` is raised and nothing has changed.
        """
        entry = self._entry(name)
        async with entry.lock:
            if self._gives_way(entry):
                with suppress(StoreError):
                    await self._read(entry)
            while True:
                new = derive(entry.kept)
                if new is None:
                    return False
                try:
                    try:
                        await self._save(entry, new)
                    except StoreConflict:
                        await self._read(entry)
                        continue
                except StoreError as error:
                    if must_save:
                        raise
                    new = derive(entry.kept)
                    if new is None:
                        return False
                    entry.unsaved = True
                    self._make_up_later(error)
                    self._put(entry, new)
                return True

    async def delete(self, name: ServerName) -> None:
        """Delete the record of a server, in any state. Raises `StoreError`."""
        entry = self._entry(name)
        self._put(entry, NOTHING)
        async with entry.lock:
            await self._store.commit(record_key(name), None)
            entry.revision, entry.unsaved = 0, False
            self._put(entry, NOTHING)

    def _entry(self, name: ServerName) -> _ServerEntry:
        return self._entries.setdefault(record_key(name), _ServerEntry(name))

    def _gives_way(self, entry: _ServerEntry) -> bool:
        """Return True if an unsaved state is obsolete, so that the store's record, or its absence, replaces it."""
        return entry.unsaved and not self._wanted(entry.name, entry.kept)

    def _put(self, entry: _ServerEntry, kept: ServerState) -> None:
        entry.kept = kept
        self._changed(entry.name, kept)

    async def _save(self, entry: _ServerEntry, kept: ServerState) -> None:
        key = record_key(entry.name)
        entry.revision = await self._store.commit(key, record_bytes(entry.name, kept), expected=entry.revision)
        entry.unsaved = False
        self._put(entry, kept)

    async def _hear(self, change: Change) -> None:
        entry = self._entries.get(change.key)
        if entry is not None:
            # A change of this process is known when its own commit has returned.
            async with entry.lock:
                if change.revision == entry.revision:
                    return
        await self._look_again(change.key)

    async def _look_again(self, key: str) -> None:
        """Read the record of this key, whose server this process may not know yet."""
        if entry := self._entries.get(key):
            async with entry.lock:
                await self._read(entry)
        elif record := await self._store.read(key):
            try:
                name, _ = await read_record(record.value, NOTHING)
            except StoreRefused as error:
                _LOG.error("%s", error)
                return
            entry = self._entry(name)
            async with entry.lock:
                await self._take(entry, record)

    async def look(self) -> None:
        """Take over all records as they are now in the store. Raises `StoreError`."""
        found = {key async for key in every_key(self._store, PREFIX)}
        for key in sorted(found.union(self._entries)):
            await self._look_again(key)

    async def _read(self, entry: _ServerEntry) -> None:
        """Take over the store's record, or save what it lacks. Raises `StoreError`."""
        record = await self._store.read(record_key(entry.name))
        if self._gives_way(entry):
            entry.unsaved, entry.revision = False, _UNREAD
        if record is not None and record.revision != entry.revision:
            await self._take(entry, record)
        elif record is not None or not entry.revision:
            if entry.unsaved:
                await self._save(entry, entry.kept)
        else:
            entry.revision, entry.unsaved = 0, False
            self._put(entry, NOTHING)

    async def _take(self, entry: _ServerEntry, record: Record) -> None:
        """Take over the record of another process, with newer tools that were found here and could not be saved."""
        try:
            _, kept = await read_record(record.value, entry.kept)
        except StoreRefused as error:
            _LOG.error("the record of server %r: %s", entry.name.id, error)
            kept = NOTHING
        mine = entry.kept
        entry.revision = record.revision
        if entry.unsaved and mine.config_hash == kept.config_hash and mine.found_at > kept.found_at:
            is_later = (mine.record.last_discovery or "") >= (kept.record.last_discovery or "")
            await self._save(entry, mine if is_later else with_newer_tools(kept, mine))
            return
        entry.unsaved = False
        if kept != mine:
            self._put(entry, kept)

    def _make_up_later(self, error: StoreError) -> None:
        if not self._closed and (self._saver is None or self._saver.done()):
            _LOG.warning("discovery results are not saved: %s", error)
            self._saver = asyncio.create_task(self._make_up(), name="toolplug-discovery-saver")

    async def _make_up(self) -> None:
        """Save until nothing is left to do."""
        while behind := [entry for entry in self._entries.values() if entry.unsaved]:
            await asyncio.sleep(PAUSE_S)
            for entry in behind:
                async with entry.lock:
                    with suppress(StoreError):
                        await self._read(entry)
