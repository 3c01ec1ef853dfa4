"""The embedded store: one SQLite file in WAL mode, safe for several processes of one machine."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Self

from toolplug.errors import StoreUnavailable
from toolplug.sqlite.errors import told_as_store_errors
from toolplug.sqlite.file import Connection, SqliteFile, Synchronous
from toolplug.sqlite.shared import (
    LOOK_S,
    LOOK_WITHOUT_SOCKETS_S,
    Announced,
    ChangeSockets,
    SharedLock,
    wake_folder,
)
from toolplug.sqlite.writer import Writer, last_commit, remove_volatile
from toolplug.stores.changes import (
    BatchResult,
    Request,
    Waiting,
    check_count,
    check_key,
    check_keys,
    check_text,
    checked_commit,
    checked_extension,
)
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import KEPT_EVENTS, VOLATILE, Change, Event, Events, Missed, Record, Store

# `Store.watch` promises to report a commit of another process 250 ms after it at the latest.
_POLL_S = 0.2
_LOG = logging.getLogger("toolplug.stores")
# A larger one raises OverflowError in the binding of parameters.
_MAX_INTEGER = 2**63 - 1

_READ = """
SELECT value, revision, expires_at, position FROM records
WHERE key = :key AND (expires_at IS NULL OR expires_at > :now)
"""
_KEYS = """
SELECT key FROM records
WHERE key >= :least AND key < :beyond AND key <> :after AND (expires_at IS NULL OR expires_at > :now)
ORDER BY key LIMIT :limit
"""
_REVISIONS = """
SELECT records.key, revision FROM json_each(:keys) AS wanted CROSS JOIN records ON records.key = wanted.value
WHERE expires_at IS NULL OR expires_at > :now
"""
# One statement, so that position and events are of one moment. A row without event says that the position is known.
_EVENTS = """
SELECT event.id, event.data
FROM records LEFT JOIN (
    SELECT id, data FROM events WHERE key = :key AND id > coalesce(:after, -1) ORDER BY id LIMIT :limit
) AS event
WHERE records.key = :key AND (expires_at IS NULL OR expires_at > :now) AND (
    :after IS NULL
    OR EXISTS (SELECT 1 FROM events WHERE key = :key AND id = :after)
    OR (origin = :after AND appended = (SELECT count(*) FROM events WHERE key = :key))
)
ORDER BY event.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """The connections of an open store. Reads have their own, so that they never wait for the writer."""

    reader: Connection
    writing: Connection
    writer: Writer
    tasks: tuple[asyncio.Task[None], ...]
    sharing: ExitStack


class SqliteStore(Store):
    """A `Store` in one SQLite file. Changes of concurrent tasks share transactions; each is answered after the COMMIT.

    `synchronous`: with `normal` a commit survives the death of the process, with `full` also a loss of power.
    `connection`: the class of its connections to SQLite. `shared`: other processes have the file open with this option
    too. They send each other their changes, and the first one removes the volatile records that the last ones left.
    A store that is not shared keeps volatile records in memory.

    ```python
    import asyncio
    from pathlib import Path

    from toolplug.sqlite import SqliteStore

    async def main():
        async with SqliteStore(Path("state.db")) as store:
            await store.commit("order/7", b"paid")

    asyncio.run(main())
    ```
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous = "normal",
        clock: Callable[[], float] = time.time,
        kept_events: int = KEPT_EVENTS,
        connection: type[sqlite3.Connection] = sqlite3.Connection,
        shared: bool = False,
    ) -> None:
        check_count("kept_events", kept_events)
        self.file: SqliteFile = SqliteFile(path=path, synchronous=synchronous, connection=connection)
        self._clock = clock
        self._kept_events = kept_events
        self.id: str = token_hex(4)
        self.shared: bool = shared
        self._sockets: ChangeSockets | None = None
        self._waiting = Waiting()
        self._volatile = MemoryStore(clock=clock, kept_events=kept_events, waiting=self._waiting)
        self._opened: _Opened | None = None

    async def read(self, key: str) -> Record | None:
        check_key(key)
        if self._in_memory(key):
            return await self._volatile.read(key)
        rows = await self._rows(_READ, key=key)
        for value, revision, expires_at, position in rows:
            return Record(value=value, revision=revision, expires_at=expires_at, position=position)
        return None

    async def commit(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int | None = None,
        ttl_s: float | None = None,
        events: Sequence[bytes] = (),
        to: str | None = None,
    ) -> int:
        if self._in_memory(key):
            return await self._volatile.commit(key, value, expected=expected, ttl_s=ttl_s, events=events)
        commit = checked_commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
        return await self._now_open().writer.write(commit)

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        if self._in_memory(key):
            return await self._volatile.extend(key, events=events, ttl_s=ttl_s)
        extension = checked_extension(key, events=events, ttl_s=ttl_s, to=to)
        return await self._now_open().writer.write(extension) > 0

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_text(prefix)
        check_text(after)
        check_count("limit", limit)
        rows = await self._rows(
            _KEYS,
            least=max(prefix, after),
            # No key holds U+10FFFF, so that every key with the prefix sorts below prefix + U+10FFFF.
            beyond=prefix + "\U0010ffff",
            after=after,
            limit=min(limit, _MAX_INTEGER),
        )
        # A file that was shared before may still have volatile records; here those in memory count.
        keys = [key for (key,) in rows if not self._in_memory(key)]
        volatile = await self._volatile.keys(prefix, after=after, limit=limit)
        return sorted([*keys, *volatile])[:limit]

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        check_keys(keys)
        revisions = await self._volatile.revisions(keys)
        for key, revision in await self._rows(_REVISIONS, keys=json.dumps([*keys])):
            revisions[key] = revision
        return revisions

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        check_key(key)
        check_count("limit", limit)
        if self._in_memory(key):
            return await self._volatile.events(key, after, wait_s=wait_s, limit=limit)

        async def page() -> Events:
            if after is not None and not 0 <= after <= _MAX_INTEGER:
                return Events(known=False)
            rows = await self._rows(_EVENTS, key=key, after=after, limit=min(limit, _MAX_INTEGER))
            entries = tuple(Event(at, data) for at, data in rows if at is not None)
            return Events(known=bool(rows), entries=entries)

        return await self._waiting.look(key, wait_s, page)

    def watch(self, prefix: str) -> AsyncGenerator[Change | Missed]:
        check_text(prefix)
        return self._waiting.watch(prefix, self._now_open)

    def now(self) -> float:
        return self._clock()

    async def aclose(self) -> None:
        # Taken at once, so that a second `aclose` finds nothing to close.
        opened, self._opened = self._opened, None
        if opened is None:
            return
        await self._volatile.aclose()
        opened.writer.close()
        write, poll = opened.tasks
        poll.cancel()
        try:
            await write
        finally:
            # Asked for also where this was cancelled, and then not waited for.
            closed = (opened.writing.close(), opened.reader.close())
            opened.sharing.close()
        await asyncio.wait([poll, *closed])

    async def __aenter__(self) -> Self:
        # What was opened is closed if a later step fails; `pop_all` hands it over at the end.
        async with AsyncExitStack() as undo:
            writing = await Connection.open(self.file.open_for_writing)
            undo.push_async_callback(writing.close)
            reader = await Connection.open(self.file.open_for_reading)
            writer = Writer(
                writing,
                self.file.path,
                clock=self._clock,
                kept_events=self._kept_events,
                committed=self._on_commit,
            )
            with told_as_store_errors(self.file.path):
                sharing = undo.enter_context(await self._share(writing))
                # Of the writing connection: `data_version` leaves out what the connection itself has written.
                seen = await _version(writing)
            sockets = self._sockets
            noticing = self._notice_others(writing, seen) if sockets is None else _look(sockets, reader)
            tasks = (asyncio.create_task(writer.run()), asyncio.create_task(noticing))
            await self._volatile.__aenter__()
            self._opened = _Opened(reader=reader, writing=writing, writer=writer, tasks=tasks, sharing=sharing)
            undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _now_open(self) -> _Opened:
        if self._opened is None:
            raise StoreUnavailable(f"{self.file.path} is not open")
        return self._opened

    async def _rows(self, sql: str, **parameters: str | int | None) -> list[sqlite3.Row]:
        reader = self._now_open().reader
        with told_as_store_errors(self.file.path):
            return await reader.rows(sql, {**parameters, "now": self._clock()})

    async def _share(self, connection: Connection) -> ExitStack:
        """Open the sockets of a shared file, and remove what the last processes left; return what to close."""
        with ExitStack() as sharing:
            if not self.shared:
                return sharing
            path = self.file.path
            try:
                lock = sharing.enter_context(closing(await SharedLock.open(path)))
                if lock.first:
                    await connection.run(remove_volatile)
                    # Only now: others may open the file, and none of their records may be removed.
                    lock.share()
                sockets = ChangeSockets(path, self.id, heard=self._waiting.tell_of, missed=self._waiting.wake_all)
                sockets.open(await connection.run(last_commit))
                sharing.callback(sockets.close)
                self._sockets = sockets
            except OSError as error:
                _LOG.warning(
                    "%s: no socket can be opened in %s (%s); changes of other processes are looked for every %g ms",
                    path,
                    wake_folder(path),
                    error,
                    LOOK_WITHOUT_SOCKETS_S * 1000,
                )
            return sharing.pop_all()

    def _in_memory(self, key: str) -> bool:
        return not self.shared and key.startswith(VOLATILE)

    def _on_commit(self, requests: Sequence[Request], batch: BatchResult) -> None:
        """Tell the readers of this process and of others."""
        self._waiting.tell(batch)
        if self._sockets is None or batch.idle:
            return
        wanted: dict[str, set[str | None]] = {}
        # Several changes of one record in a batch: all whom one of them is for are told.
        for request in requests:
            wanted.setdefault(request.key, set()).add(request.to)
        # A record that has expired was named by no request, and concerns all.
        self._sockets.announce(
            batch.number,
            [Announced(batch.change(key), frozenset(wanted.get(key, {None}))) for key in batch.changed_keys],
        )

    async def _notice_others(self, connection: Connection, seen: int | None) -> None:
        """Wake the readers when another process has committed since the version `seen`."""
        while True:
            await self._waiting.anyone.wait()
            try:
                version = await _version(connection)
            except sqlite3.Error:
                version = None
            # An error makes it None and wakes the readers too: rather once too often than not at all.
            if version != seen:
                self._waiting.wake_all()
            seen = version
            await asyncio.sleep(LOOK_WITHOUT_SOCKETS_S if self.shared else _POLL_S)


async def _look(sockets: ChangeSockets, connection: Connection) -> None:
    """Compare the number of the last transaction with those that the sockets have heard of, again and again."""
    while True:
        with suppress(sqlite3.Error):
            sockets.look(await connection.run(last_commit))
        await asyncio.sleep(LOOK_S)


async def _version(connection: Connection) -> int:
    """Return SQLite's `data_version`, which changes with commits of other connections only."""
    ((version,),) = await connection.rows("PRAGMA data_version")
    return version
