"""Group commit: changes that arrive while a batch is written share the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from toolplug.errors import StoreConflict, StoreError, StoreUnavailable
from toolplug.stores import BatchResult, Commit, Counters, Head, Request, apply_changes
from toolplug_postgres.connection import RACES, ServerConnection, fail, wait_for_answer
from toolplug_postgres.notifications import notifications
from toolplug_postgres.server import Server, Unanswered
from toolplug_postgres.statements import Statements

_MAX_BATCH = 256
_MAX_BATCH_BYTES = 16 * 1024 * 1024
_BYTES_PER_S = 16 * 1024 * 1024
# Records begin at numbers that no earlier one of the key has had: milliseconds × 1,024, and milliseconds since 2026.
_REVISIONS_PER_MS = 1024
_BEGIN_OF_POSITIONS_S = 1_767_225_600.0
_REMOVED_S = 3600.0
"""How long a removed record is remembered, in case that the clock of the server steps back."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PendingBatch:
    change: Request
    size: int
    answer: asyncio.Future[int]


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of a key; that of a removed record is not `living`, and remembers what the next one begins above."""

    head: Head
    living: bool


class Writer:
    """The only task of this process that writes one table.

    It calls `committed` with the result of each transaction before it answers the callers. `clock`: `None` for that of
    the server. `by`: the id of the store.
    """

    def __init__(
        self,
        server: Server,
        statements: Statements,
        *,
        by: str,
        kept_events: int,
        clock: Callable[[], float] | None,
        committed: Callable[[BatchResult], None],
        synchronous_commit: str | None = None,
    ) -> None:
        self.link: ServerConnection = ServerConnection(server, synchronous_commit=synchronous_commit)
        self._server = server
        self._statements = statements
        self._by = by
        self._kept_events = kept_events
        self._clock = clock
        self._committed = committed
        self._asked: deque[_PendingBatch] = deque()
        self._news = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="toolplug-postgres-writer")

    async def write(self, change: Request) -> int:
        """Return the record's revision, 0 if there is none, after the COMMIT. Raises `StoreError`."""
        if self._closing:
            raise StoreUnavailable(f"{self._server.place} is not open")
        value = change.value if isinstance(change, Commit) else None
        size = len(value or b"") + sum(map(len, change.events))
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked.append(_PendingBatch(change=change, size=size, answer=answer))
        self._news.set()
        try:
            return await wait_for_answer(answer, self._server, more_s=size / _BYTES_PER_S)
        except Unanswered as error:
            raise StoreUnavailable(f"{error}; the change may have been written") from None

    async def aclose(self) -> None:
        """Write what is queued, and end the connection."""
        self._closing = True
        self._news.set()
        await asyncio.wait([self._task])
        await self.link.aclose()

    async def _run(self) -> None:
        try:
            while True:
                while self._asked:
                    await self._answer(self._next_batch())
                if self._closing:
                    return
                self._news.clear()
                await self._news.wait()
        finally:
            self._closing = True
            _fail_all(self._asked, StoreUnavailable(f"{self._server.place} was closed before this change was written"))

    def _next_batch(self) -> list[_PendingBatch]:
        batch: list[_PendingBatch] = []
        size = 0
        while self._asked and len(batch) < _MAX_BATCH and (not batch or size + self._asked[0].size <= _MAX_BATCH_BYTES):
            size += self._asked[0].size
            batch.append(self._asked.popleft())
        return batch

    async def _answer(self, batch: list[_PendingBatch]) -> None:
        try:
            # A caller that was cancelled, or has waited for its two seconds, finds nothing done.
            while batch := [asked for asked in batch if not asked.answer.done()]:
                if await self._write(batch):
                    return
        except StoreError as error:
            _fail_all(batch, error)
        except BaseException:
            _fail_all(batch, StoreUnavailable(f"{self._server.place} was closed while this change was being written"))
            raise

    async def _write(self, batch: Sequence[_PendingBatch]) -> bool:
        """Write a batch and answer it. Return False if another process has changed one of its records in between."""
        by_key: dict[str, list[_PendingBatch]] = {}
        for asked in batch:
            by_key.setdefault(asked.change.key, []).append(asked)
        now, rows = await self._read([*by_key])
        results = {
            key: _apply(key, [asked.change for asked in group], rows.get(key), now) for key, group in by_key.items()
        }
        effective = {key: result for key, result in sorted(results.items()) if not result.idle}
        if effective and not await self._commit(effective, rows, now, by_key, sum(asked.size for asked in batch)):
            return False
        self._committed(_merge(results.values()))
        for key, group in by_key.items():
            for asked, answer in zip(group, results[key].answers, strict=True):
                if isinstance(answer, StoreConflict):
                    fail(asked.answer, answer)
                elif not asked.answer.done():
                    asked.answer.set_result(answer)
        return True

    async def _read(self, keys: Sequence[str]) -> tuple[float, dict[str, _Row]]:
        clock = None if self._clock is None else self._clock()
        found = await self.link.fetch_again(self._statements.heads, keys, clock)
        rows: dict[str, _Row] = {}
        for _, key, living, revision, expires_at, origin, position, appended in found:
            if key is not None:
                head = Head(
                    revision=revision, expires_at=expires_at, origin=origin, position=position, appended=appended
                )
                rows[key] = _Row(head, living)
        return found[0][0], rows

    async def _commit(
        self,
        results: Mapping[str, BatchResult],
        rows: Mapping[str, _Row],
        now: float,
        by_key: Mapping[str, Sequence[_PendingBatch]],
        size: int,
    ) -> bool:
        changes = (
            (result.change(key), {asked.change.to for asked in by_key[key]})
            for key, result in results.items()
            if key in result.changed_keys
        )
        channels = [*notifications(self._server.schema, self._by, changes)]
        known = [(key, rows[key].head) for key in results if key in rows]
        expected = [(key, head.revision, head.position, head.expires_at) for key, head in known]
        heads = [_row(key, result, now) for key, result in results.items()]
        emptied = [key for key, result in results.items() if key in result.removed]
        appended = {
            key: result.appended[key][-self._kept_events :] for key, result in results.items() if result.appended
        }
        # The ids in a log are consecutive: the last one to drop follows from the newest.
        trimmed = [
            (key, results[key].heads[key].position - self._kept_events)
            for key in appended
            if key not in results[key].removed and results[key].heads[key].appended > self._kept_events
        ]
        events = [(key, event.id, event.data) for key, entries in appended.items() for event in entries]
        arguments = [
            *_columns(expected, 4), *_columns(heads, 8), emptied, *_columns(trimmed, 2), *_columns(events, 3),
            *_columns(channels, 2),
        ]  # fmt: skip
        try:
            ((unchanged, _),) = await self.link.fetch(self._statements.write, *arguments, more_s=size / _BYTES_PER_S)
        except RACES:
            return False
        return unchanged


def _apply(key: str, changes: Sequence[Request], row: _Row | None, now: float) -> BatchResult:
    """Apply the changes of one key; a new record begins above what the clock and the row say."""
    removed = int(now * 1000) * _REVISIONS_PER_MS - 1
    position = max(0, int((now - _BEGIN_OF_POSITIONS_S) * 1000))
    if row is None:
        return apply_changes(changes, {}, Counters(removed, position), now=now)
    head = row.head
    if not row.living:
        counters = Counters(max(removed, head.revision), max(position, head.position))
        return apply_changes(changes, {}, counters, now=now)
    counters = Counters(removed, head.position if head.alive(now) else max(position, head.position))
    return apply_changes(changes, {key: head}, counters, now=now)


def _row(key: str, result: BatchResult, now: float) -> tuple[object, ...]:
    """Return key, revision, expires_at, origin, position, appended, value, has_value."""
    head = result.heads.get(key)
    if head is None:
        return (key, result.counters.removed, now + _REMOVED_S, 0, result.counters.position, 0, None, True)
    value = result.values.get(key)
    return (key, head.revision, head.expires_at, head.origin, head.position, head.appended, value, value is not None)


def _columns(rows: Sequence[Sequence[object]], count: int) -> list[list[object]]:
    return [[row[at] for row in rows] for at in range(count)]


def _merge(results: Iterable[BatchResult]) -> BatchResult:
    """Return one result with what each of the results, of different keys, has."""
    merged = BatchResult(counters=Counters(0, 0))
    for result in results:
        merged.removed |= result.removed
        merged.heads.update(result.heads)
        merged.values.update(result.values)
        merged.appended.update(result.appended)
    return merged


def _fail_all(batch: Iterable[_PendingBatch], error: StoreError) -> None:
    for asked in batch:
        fail(asked.answer, error)
