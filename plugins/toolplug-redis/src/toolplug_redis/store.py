"""A `Store` on Redis or Valkey: one script a change, on the keys of one record."""

from __future__ import annotations

from binascii import crc_hqx
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from secrets import token_hex
from types import TracebackType
from typing import Self

from toolplug.errors import StoreConflict, StoreUnavailable
from toolplug.stores import (
    INLINE_BYTES,
    KEPT_EVENTS,
    Change,
    Event,
    Events,
    Missed,
    Record,
    Store,
    Waiting,
    check_count,
    check_key,
    check_keys,
    check_text,
    checked_commit,
    checked_extension,
)
from toolplug_redis.address import Address
from toolplug_redis.scripts import CHANGE, EVENTS, KEYS, REVISIONS
from toolplug_redis.server import Server, milliseconds

BUCKETS = 256
"""Parts of the data, each in one slot of a cluster."""
_LARGEST = 2**53
_FIELDS = (b"v", b"n", b"p", b"e")
_EXTRA_KEYS = 16


class RedisStore(Store):
    """A `Store` in the keys of one prefix of a Redis or Valkey server, or of a cluster.

    `prefix` begins the names of all. Times to live follow the server's clock. `clock`, in seconds since the epoch,
    replaces it in tests.
    """

    def __init__(
        self, address: Address, *, clock: Callable[[], float] | None = None, kept_events: int = KEPT_EVENTS
    ) -> None:
        check_count("kept_events", kept_events)
        self.id: str = token_hex(4)
        self.shared: bool = True
        self.prefix: str = address.prefix
        self._clock = clock
        self._kept_events = kept_events
        self._waiting = Waiting()
        channels = [self._channel(), self._channel(self.id)]
        self._server = Server(address, channels, self._hear, self._waiting.wake_all)
        self._open = False

    async def read(self, key: str) -> Record | None:
        check_key(key)
        name = self._names(key)[0]
        value, revision, position, expires = await self._server.run(
            lambda client: client.execute_command("HMGET", name, *_FIELDS)
        )
        expires_at = None if expires is None else int(expires) / 1000
        if revision is None or (self._clock is not None and expires_at is not None and expires_at <= self._clock()):
            return None
        return Record(value=value, revision=int(revision), expires_at=expires_at, position=int(position))

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
        change = checked_commit(key, value, expected=expected, ttl_s=ttl_s, events=events)
        operation = "remove" if value is None else "write"
        return await self._change(key, operation, change.expected, change.ttl_s, to, value, change.events)

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        change = checked_extension(key, events=events, ttl_s=ttl_s)
        return await self._change(key, "extend", None, change.ttl_s, to, None, change.events) > 0

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_text(prefix)
        check_text(after)
        check_count("limit", limit)
        # The second segment of a key decides on its bucket.
        buckets = [bucket_of(prefix)] if prefix.count("/") > 1 else [*range(BUCKETS)]
        page = limit if len(buckets) == 1 else min(limit, limit // 64 + _EXTRA_KEYS)
        last = b"[" + prefix.encode() + b"\xff" if prefix else b"+"
        start = b"(" + after.encode() if after and after >= prefix else b"[" + prefix.encode() if prefix else b"-"
        firsts: dict[int, bytes] = dict.fromkeys(buckets, start)
        found: list[bytes] = []
        while firsts:
            asked = [*firsts]
            calls = [(KEYS, self._indexes(bucket), (self._now(), firsts[bucket], last, page)) for bucket in asked]
            for bucket, (more, *listed) in zip(asked, await self._server.call_each(calls), strict=True):
                found += listed
                if more:
                    firsts[bucket] = b"(" + listed[-1]
                else:
                    del firsts[bucket]
            found.sort()
            if len(found) >= limit:
                # What has been listed beyond the limit is not needed, nor are buckets that have come so far.
                firsts = {bucket: first for bucket, first in firsts.items() if first[1:] < found[limit - 1]}
        return [key.decode() for key in found[:limit]]

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        check_keys(keys)
        by_bucket: defaultdict[int, list[str]] = defaultdict(list)
        for key in keys:
            by_bucket[bucket_of(key)].append(key)
        calls = [(REVISIONS, [self._names(key)[0] for key in part], (self._now(),)) for part in by_bucket.values()]
        if not calls:
            self._check_open()
        revisions = dict.fromkeys(keys, 0)
        for part, answer in zip(by_bucket.values(), await self._server.call_each(calls), strict=True):
            revisions |= zip(part, map(int, answer), strict=True)
        return revisions

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        check_key(key)
        check_count("limit", limit)
        names = self._names(key)[:2]
        start = "" if after is None else max(-1, min(after, _LARGEST))

        async def page() -> Events:
            self._check_open()
            known, *flat = await self._server.call(EVENTS, names, (self._now(), start, limit)) or (0,)
            entries = zip(flat[::2], flat[1::2], strict=True)
            return Events(
                known=bool(known), entries=tuple(Event(int(at.partition(b"-")[0]), data) for at, data in entries)
            )

        return await self._waiting.look(key, wait_s, page)

    def watch(self, prefix: str) -> AsyncGenerator[Change | Missed]:
        check_text(prefix)
        return self._waiting.watch(prefix, self._check_open)

    def now(self) -> float:
        return self._server.now() if self._clock is None else self._clock()

    async def aclose(self) -> None:
        self._open = False
        self._waiting.wake_all()
        await self._server.close()

    async def __aenter__(self) -> Self:
        await self._server.open()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _change(
        self,
        key: str,
        operation: str,
        expected: int | None,
        ttl_s: float | None,
        to: str | None,
        value: bytes | None,
        events: Sequence[bytes],
    ) -> int:
        """Make a change, tell the readers of this store, and return the revision. Raises `StoreConflict`."""
        arguments = (
            self._now(),
            operation,
            key.encode(),
            "" if expected is None else expected,
            milliseconds(ttl_s),
            self._kept_events,
            INLINE_BYTES,
            self.id,
            self._channel("all" if to is None else to),
            b"" if value is None else value,
            *events,
        )

        def read_revision(answer: list[int]) -> int:
            revision, *end = answer
            if not end:
                raise StoreConflict(key, expected=expected or 0, actual=revision)
            if revision and (operation != "extend" or events):
                change = _change(key, 0 if operation == "remove" else revision, value, end[0], events)
                self._waiting.tell_of([change])
            return revision

        return await self._server.change(CHANGE, self._names(key), arguments, read_revision)

    def _hear(self, message: bytes) -> None:
        """Take a published change of another store; the readers of this one know its own changes already."""
        store, change = published_change(message)
        if store != self.id:
            self._waiting.tell_of([change])

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the Redis store is not open")

    def _now(self) -> str:
        """Return the time for scripts: empty for the server's."""
        return "" if self._clock is None else str(round(self._clock() * 1000))

    def _channel(self, store: str = "all") -> str:
        return f"{self.prefix}:changes:{store}"

    def _names(self, key: str) -> list[bytes]:
        """Return the names of the record, its log, the index, the expiries and what a removal left."""
        bucket = bucket_of(key)
        begin, encoded = f"{self.prefix}:{{{bucket:02x}}}:", key.encode()
        record, log, left = (f"{begin}{letter}:".encode() + encoded for letter in "rlt")
        return [record, log, *self._indexes(bucket), left]

    def _indexes(self, bucket: int) -> list[bytes]:
        return [f"{self.prefix}:{{{bucket:02x}}}:{letter}".encode() for letter in "ix"]


def bucket_of(key: str) -> int:
    """Return the bucket of a key, by CRC16 of its partition: its second segment, or all of it if it has one only."""
    _, slash, rest = key.partition("/")
    return crc_hqx((rest.partition("/")[0] if slash else key).encode(), 0) % BUCKETS


def _change(key: str, revision: int, value: bytes | None, position: int, events: Sequence[bytes]) -> Change:
    """Return the change after which the log ends at a position."""
    first = position - len(events) + 1
    return Change(
        key,
        revision,
        value if value is not None and len(value) <= INLINE_BYTES else None,
        tuple(Event(at, data) for at, data in enumerate(events, first))
        if sum(map(len, events)) <= INLINE_BYTES
        else None,
    )


def published_change(message: bytes) -> tuple[str, Change]:
    """Return the id of the store that made a change, and the change that the script has published."""
    header, _, body = message.partition(b"\n")
    store, *numbers = header.split()
    key_size, revision, value_size, first, has_events, *sizes = map(int, numbers)
    at = key_size + max(value_size, 0)
    events: list[Event] = []
    for number, size in enumerate(sizes):
        events.append(Event(first + number, body[at : at + size]))
        at += size
    change = Change(
        body[:key_size].decode(),
        revision,
        body[key_size : key_size + value_size] if value_size >= 0 else None,
        tuple(events) if has_events else None,
    )
    return store.decode(), change
