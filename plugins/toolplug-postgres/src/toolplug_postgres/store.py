"""The store in a PostgreSQL database, shared by any number of processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from secrets import token_hex
from types import TracebackType
from typing import Self

from toolplug.errors import StoreError, StoreUnavailable
from toolplug.runtime import LoopTimeout
from toolplug.stores import (
    KEPT_EVENTS,
    VOLATILE,
    Change,
    Event,
    Events,
    Missed,
    Record,
    Request,
    Store,
    Waiting,
    check_count,
    check_key,
    check_keys,
    check_text,
    checked_commit,
    checked_extension,
)
from toolplug_postgres.connection import Reader, Rows
from toolplug_postgres.notifications import Listener
from toolplug_postgres.schema import prepare
from toolplug_postgres.server import PATIENCE_S, Server
from toolplug_postgres.statements import Statements, keys_statement, revisions_statement
from toolplug_postgres.writer import Writer

_MAX_INTEGER = 2**63 - 1
_READERS = 2
_PURGE_EVERY_S = 5.0
_PURGED_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """The connections of an open store. Volatile records have their own, so that they never wait for a disk."""

    reader: Reader
    durable: Writer
    volatile: Writer
    life: AsyncExitStack


class PostgresStore(Store):
    """A `Store` in one schema of a PostgreSQL database. Changes of concurrent tasks share transactions.

    A commit is durable as `synchronous_commit` of the server, or of the URL, says; a volatile record is lost with a
    crash of the server. `clock`: for tests, instead of the server's.
    """

    def __init__(
        self, server: Server, *, clock: Callable[[], float] | None = None, kept_events: int = KEPT_EVENTS
    ) -> None:
        check_count("kept_events", kept_events)
        self.id: str = token_hex(4)
        self.shared: bool = True
        self._server = server
        self._clock = clock
        self._kept_events = kept_events
        self._durable = Statements.of(server.schema, volatile=False)
        self._volatile = Statements.of(server.schema, volatile=True)
        self._keys = keys_statement(server.schema)
        self._revisions = revisions_statement(server.schema)
        self._waiting = Waiting()
        self._listener = Listener(server, self.id, heard=self._waiting.tell_of, missed=self._waiting.wake_all)
        self._opened: _Opened | None = None

    async def read(self, key: str) -> Record | None:
        check_key(key)
        for value, revision, expires_at, position in await self._rows(self._of(key).read, key, self._time()):
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
        return await self._write(checked_commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to))

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        return await self._write(checked_extension(key, events=events, ttl_s=ttl_s, to=to)) > 0

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_text(prefix)
        check_text(after)
        check_count("limit", limit)
        # No key holds U+10FFFF, so that every key with the prefix sorts below prefix + U+10FFFF.
        beyond = prefix + "\U0010ffff"
        rows = await self._rows(self._keys, max(prefix, after), beyond, after, self._time(), min(limit, _MAX_INTEGER))
        return [key for (key,) in rows]

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        check_keys(keys)
        revisions = dict.fromkeys(keys, 0)
        for key, revision in await self._rows(self._revisions, [*revisions], self._time()):
            revisions[key] = revision
        return revisions

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        check_key(key)
        check_count("limit", limit)

        async def page() -> Events:
            if after is not None and not 0 <= after <= _MAX_INTEGER:
                return Events(known=False)
            rows = await self._rows(self._of(key).events, key, after, self._time(), min(limit, _MAX_INTEGER))
            entries = tuple(Event(at, data) for at, data in rows if at is not None)
            return Events(known=bool(rows), entries=entries)

        return await self._waiting.look(key, wait_s, page)

    def watch(self, prefix: str) -> AsyncGenerator[Change | Missed]:
        check_text(prefix)
        return self._waiting.watch(prefix, self._now_open)

    def now(self) -> float:
        """Return the time on the server's clock, as measured within the last seconds."""
        return self._listener.now() if self._clock is None else self._clock()

    async def aclose(self) -> None:
        opened, self._opened = self._opened, None
        if opened is None:
            return
        self._waiting.wake_all()
        await opened.life.aclose()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._listener.aclose)
            reader = Reader(self._server, connections=_READERS)
            undo.push_async_callback(reader.aclose)
            durable = self._writer(self._durable)
            undo.push_async_callback(durable.aclose)
            volatile = self._writer(self._volatile, synchronous_commit="off")
            undo.push_async_callback(volatile.aclose)
            try:
                async with LoopTimeout(PATIENCE_S):
                    await prepare(await durable.link.connect(), self._server)
                    await self._listener.start()
            except TimeoutError as error:
                raise self._server.error(error) from None
            purging = asyncio.create_task(self._purge(reader), name="toolplug-postgres-purge")
            undo.push_async_callback(asyncio.wait, [purging])
            undo.callback(purging.cancel)
            self._opened = _Opened(reader=reader, durable=durable, volatile=volatile, life=undo.pop_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _writer(self, statements: Statements, *, synchronous_commit: str | None = None) -> Writer:
        return Writer(
            self._server,
            statements,
            by=self.id,
            kept_events=self._kept_events,
            clock=self._clock,
            committed=self._waiting.tell,
            synchronous_commit=synchronous_commit,
        )

    def _of(self, key: str) -> Statements:
        return self._volatile if key.startswith(VOLATILE) else self._durable

    def _time(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _now_open(self) -> _Opened:
        if self._opened is None:
            raise StoreUnavailable(f"{self._server.place} is not open")
        return self._opened

    async def _rows(self, statement: str, *arguments: object) -> Rows:
        return await self._now_open().reader.fetch(statement, *arguments)

    async def _write(self, change: Request) -> int:
        opened = self._now_open()
        writer = opened.volatile if change.key.startswith(VOLATILE) else opened.durable
        return await writer.write(change)

    async def _purge(self, reader: Reader) -> None:
        """Remove expired records, a bounded number at once."""
        while True:
            await asyncio.sleep(_PURGE_EVERY_S)
            for statements in (self._durable, self._volatile):
                try:
                    while (await reader.fetch(statements.purge, self._time(), _PURGED_AT_ONCE))[0][0]:
                        pass
                except StoreError:
                    break
