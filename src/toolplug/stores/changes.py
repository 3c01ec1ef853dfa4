"""Changes of records, the effect of a batch of them, and who waits for one.

Nothing else assigns revisions and positions. The functions are pure, so that all stores behave alike: a store reads
heads, and writes what `apply_changes` returns. Readers wait for the next event of a log, or for any change under a
prefix.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from toolplug.errors import StoreConflict, StoreMisused
from toolplug.stores.store import INLINE_BYTES, Change, Event, Events, Missed

MAX_KEY_BYTES = 512
MAX_VALUE_BYTES = 64 * 1024 * 1024
MAX_EVENT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The arguments of one `Store.commit`, with the meanings documented there.

    ```python
    from toolplug.stores import Commit, checked_commit

    assert isinstance(checked_commit("order/7", b"paid", expected=None, ttl_s=60, events=[]), Commit)
    ```
    """

    key: str
    value: bytes | None
    expected: int | None
    ttl_s: float | None
    events: tuple[bytes, ...]
    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The arguments of one `Store.extend`, with the meanings documented there.

    ```python
    from toolplug.stores import Extension, checked_extension

    assert isinstance(checked_extension("order/7", events=[b"sent"], ttl_s=None), Extension)
    ```
    """

    key: str
    events: tuple[bytes, ...]
    ttl_s: float | None
    to: str | None = None


Request = Commit | Extension


def checked_commit(
    key: str,
    value: bytes | None,
    *,
    expected: int | None,
    ttl_s: float | None,
    events: Sequence[bytes],
    to: str | None = None,
) -> Commit:
    """Return the commit. Raises `StoreMisused`, naming the limit, if an argument exceeds one."""
    check_key(key)
    if value is None and events:
        raise StoreMisused(f"deleting {key!r} takes its events along: commit a last value with the events instead")
    if value is not None and len(value) > MAX_VALUE_BYTES:
        raise StoreMisused(f"the value of {key!r} has {len(value)} bytes; a store takes {MAX_VALUE_BYTES}")
    if expected is not None and expected < 0:
        raise StoreMisused(f"expected revision {expected} of {key!r}: revisions count from 1, and 0 means no record")
    _check_ttl(key, ttl_s, without="for ever")
    return Commit(key=key, value=value, expected=expected, ttl_s=ttl_s, events=_checked_events(key, events), to=to)


def checked_extension(key: str, *, events: Sequence[bytes], ttl_s: float | None, to: str | None = None) -> Extension:
    """Return the extension. Raises `StoreMisused`, naming the limit, if an argument exceeds one."""
    check_key(key)
    _check_ttl(key, ttl_s, without="to leave it as it is")
    return Extension(key=key, events=_checked_events(key, events), ttl_s=ttl_s, to=to)


def check_key(key: str) -> None:
    """Raise `StoreMisused` unless the key has 1 to 512 bytes of UTF-8 and no character that some store cannot sort."""
    if not key:
        raise StoreMisused("a key is not empty")
    check_text(key)


def check_text(text: str) -> None:
    """Raise `StoreMisused` unless the text may be part of a key. It may be empty, as a prefix may."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise StoreMisused(f"key {text!r} is not text: {error.reason}") from error
    if size > MAX_KEY_BYTES:
        raise StoreMisused(f"key {text[:40]!r}… has {size} bytes; a store takes {MAX_KEY_BYTES}")
    # PostgreSQL has no U+0000 in texts; U+10FFFF is the end of a range in queries by prefix.
    if "\x00" in text or "\U0010ffff" in text:
        raise StoreMisused(f"key {text!r} holds U+0000 or U+10FFFF")


def check_keys(keys: Collection[str]) -> None:
    """Raise `StoreMisused` unless each is a key."""
    for key in keys:
        check_key(key)


def check_count(name: str, count: int) -> None:
    """Raise `StoreMisused` unless the number is at least 1."""
    if count < 1:
        raise StoreMisused(f"{name} is {count!r}; it is at least 1")


def _checked_events(key: str, events: Sequence[bytes]) -> tuple[bytes, ...]:
    for data in events:
        if len(data) > MAX_EVENT_BYTES:
            raise StoreMisused(f"an event of {key!r} has {len(data)} bytes; a store takes {MAX_EVENT_BYTES}")
    return tuple(events)


def _check_ttl(key: str, ttl_s: float | None, *, without: str) -> None:
    if ttl_s is not None and not (ttl_s > 0 and math.isfinite(ttl_s)):
        raise StoreMisused(f"time to live {ttl_s!r} of {key!r}: give seconds above 0, or None {without}")


class Counters(NamedTuple):
    """Numbers of the whole store.

    `removed`: the highest revision of any removed record; a new record begins above it.
    `position`: the last position assigned, to an event or to the beginning of a log.

    ```python
    from toolplug.stores import Counters

    EMPTY_STORE = Counters(removed=0, position=0)
    ```
    """

    removed: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A stored record without its value.

    `origin`: the position of its log before the first event. `position`: that of the last event. `appended`: the number
    of events ever appended to the log, including dropped ones.

    ```python
    from toolplug.stores import Head

    head = Head(revision=1, expires_at=100.0, origin=0, position=0, appended=0)
    assert head.alive(now=99.0)
    ```
    """

    revision: int
    expires_at: float | None
    origin: int
    position: int
    appended: int

    def alive(self, now: float) -> bool:
        """Return whether the record has not expired."""
        return self.expires_at is None or self.expires_at > now


@dataclass(slots=True, kw_only=True)
class BatchResult:
    """What to write, in this order: `removed` (with their logs), then `heads`, `values`, `appended`, `counters`.

    `heads` are of all records that changed, `values` are the changed values. `answers` has one item for each change, in
    order: the record's revision after it, 0 if there is no record, or the conflict, which affects only that change.
    `number`: that of the transaction that writes it, in a store that counts them.

    ```python
    from toolplug.stores import BatchResult, Counters, apply_changes, checked_commit

    change = checked_commit("order/7", b"paid", expected=0, ttl_s=None, events=[])
    result: BatchResult = apply_changes([change], {}, Counters(0, 0), now=0.0)
    assert result.answers == [result.heads["order/7"].revision]
    assert result.values == {"order/7": b"paid"}
    ```
    """

    counters: Counters
    answers: list[int | StoreConflict] = field(default_factory=list[int | StoreConflict])
    removed: set[str] = field(default_factory=set[str])
    heads: dict[str, Head] = field(default_factory=dict[str, Head])
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    appended: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])
    number: int = 0

    @property
    def idle(self) -> bool:
        """True if there is nothing to write."""
        return not (self.removed or self.heads)

    @property
    def touched_keys(self) -> Iterable[str]:
        """The keys whose logs were changed or removed."""
        return self.removed | self.appended.keys()

    @property
    def changed_keys(self) -> Iterable[str]:
        """The keys whose records or logs were changed or removed, which does not include renewals."""
        return self.removed | self.values.keys() | self.appended.keys()

    def change(self, key: str) -> Change:
        """Return the change of a key for its watches."""
        head, value, events = self.heads.get(key), self.values.get(key), tuple(self.appended.get(key, ()))
        return Change(
            key,
            0 if head is None else head.revision,
            value if value is not None and len(value) <= INLINE_BYTES else None,
            events if sum(len(event.data) for event in events) <= INLINE_BYTES else None,
        )


def apply_changes(
    changes: Sequence[Request], stored: Mapping[str, Head], counters: Counters, *, now: float
) -> BatchResult:
    """Apply the changes in order; each sees the effect of those before it.

    `stored`: the heads of the records that the changes name, if they exist, and of any others that may have expired.
    Expired records are removed first, whether or not a change names them.
    """
    settlement = BatchResult(counters=counters)
    # First: a change that names an expired record must find none.
    for key, head in stored.items():
        if not head.alive(now):
            _remove(settlement, key, head.revision)
    for change in changes:
        # Read for each change: an earlier one of the batch may have written the same record.
        head = _current(settlement, stored, change.key)
        if isinstance(change, Commit):
            settlement.answers.append(_commit(settlement, change, head, now))
        else:
            settlement.answers.append(_extend(settlement, change, head, now))
    return settlement


def _current(settlement: BatchResult, stored: Mapping[str, Head], key: str) -> Head | None:
    if key in settlement.heads:
        return settlement.heads[key]
    return None if key in settlement.removed else stored.get(key)


def _remove(settlement: BatchResult, key: str, revision: int) -> None:
    settlement.removed.add(key)
    # What an earlier change of this batch has written goes too, so that the store writes nothing of it.
    settlement.heads.pop(key, None)
    settlement.values.pop(key, None)
    settlement.appended.pop(key, None)
    # The highest of all removed ones, in one number: a counter for each removed key would grow for ever.
    settlement.counters = settlement.counters._replace(removed=max(settlement.counters.removed, revision))


def _commit(settlement: BatchResult, change: Commit, head: Head | None, now: float) -> int | StoreConflict:
    actual = head.revision if head else 0
    if change.expected is not None and change.expected != actual:
        return StoreConflict(change.key, expected=change.expected, actual=actual)
    if change.value is not None:
        return _write(settlement, change, change.value, head, now)
    if head is None:
        return 0
    # One more than the record had: the deletion is a change, whose revision a caller may remember.
    _remove(settlement, change.key, head.revision + 1)
    return head.revision + 1


def _write(settlement: BatchResult, change: Commit, value: bytes, head: Head | None, now: float) -> int:
    if head is None:
        removed, position = settlement.counters
        # The log begins at a position of its own, so that a reader of the log before it notices that it is another one.
        position += 1
        settlement.counters = Counters(removed, position)
        head = Head(revision=removed, expires_at=None, origin=position, position=position, appended=0)
    head = _append(settlement, change, head)
    head = replace(head, revision=head.revision + 1, expires_at=None if change.ttl_s is None else now + change.ttl_s)
    settlement.heads[change.key] = head
    settlement.values[change.key] = value
    return head.revision


def _extend(settlement: BatchResult, change: Extension, head: Head | None, now: float) -> int:
    if head is None:
        return 0
    if change.ttl_s is not None:
        head = replace(head, expires_at=now + change.ttl_s)
    if change.events or change.ttl_s is not None:
        settlement.heads[change.key] = _append(settlement, change, head)
    return head.revision


def _append(settlement: BatchResult, change: Request, head: Head) -> Head:
    if not change.events:
        return head
    removed, position = settlement.counters
    entries = [Event(at, data) for at, data in enumerate(change.events, position + 1)]
    settlement.appended.setdefault(change.key, []).extend(entries)
    position = entries[-1].id
    settlement.counters = Counters(removed, position)
    return replace(head, position=position, appended=head.appended + len(entries))


_MOST_BEHIND = 1000


class Waiting:
    """The waiting readers of one store. `anyone` is set while there is at least one.

    ```python
    import asyncio

    from toolplug.stores import BatchResult, Counters, Missed, Waiting

    async def main():
        waiting = Waiting()
        changes = waiting.watch("order/", lambda: None)
        assert await anext(changes) == Missed()
        result = BatchResult(counters=Counters(0, 0), removed={"order/7"})
        waiting.tell(result)
        assert await anext(changes) == result.change("order/7")

    asyncio.run(main())
    ```
    """

    def __init__(self) -> None:
        self.anyone: asyncio.Event = asyncio.Event()
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._watches: set[_Watch] = set()

    async def look(self, key: str, wait_s: float, page: Callable[[], Awaitable[Events]]) -> Events:
        """Return the page as soon as it has entries or is unknown, or after `wait_s` seconds as it is."""
        if wait_s <= 0:
            return await page()
        give_up_at = asyncio.get_running_loop().time() + wait_s
        # Parked before the first look: a commit between look and wait rings.
        with self._park(key) as bell:
            while True:
                # Before the look: a commit that comes while the page is read rings again.
                bell.clear()
                events = await page()
                if events.entries or not events.known or asyncio.get_running_loop().time() >= give_up_at:
                    return events
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(give_up_at):
                        await bell.wait()

    async def watch(self, prefix: str, check_open: Callable[[], object]) -> AsyncGenerator[Change | Missed]:
        """Yield as `Store.watch` does, until `check_open` raises."""
        check_open()
        watch = _Watch(prefix)
        self._watches.add(watch)
        self.anyone.set()
        try:
            while True:
                check_open()
                if watch.missed:
                    watch.missed = False
                    yield Missed()
                elif watch.changes:
                    yield watch.changes.popleft()
                else:
                    watch.bell.clear()
                    await watch.bell.wait()
        finally:
            self._watches.discard(watch)
            self._clear_if_none()

    def tell(self, settlement: BatchResult) -> None:
        """Wake the readers of the logs that were changed, and tell the watches."""
        self.wake(settlement.touched_keys)
        if self._watches:
            self._offer(settlement.change(key) for key in settlement.changed_keys)

    def tell_of(self, changes: Sequence[Change]) -> None:
        """Wake the readers of these logs, and tell the watches; for the changes of another process."""
        self.wake(change.key for change in changes)
        self._offer(changes)

    def _offer(self, changes: Iterable[Change]) -> None:
        for change in changes:
            for watch in self._watches:
                if change.key.startswith(watch.prefix):
                    watch.take(change)

    def wake_all(self) -> None:
        """Wake all readers, since any of them may have missed something."""
        # A copy, as those that are woken may leave.
        self.wake(tuple(self._bells))
        for watch in self._watches:
            watch.miss()

    def wake(self, keys: Iterable[str]) -> None:
        """Wake the readers of these logs."""
        for key in keys:
            for bell in self._bells.get(key, ()):
                bell.set()

    @contextmanager
    def _park(self, key: str) -> Generator[asyncio.Event]:
        bell = asyncio.Event()
        self._bells.setdefault(key, set()).add(bell)
        self.anyone.set()
        try:
            yield bell
        finally:
            self._bells[key].discard(bell)
            if not self._bells[key]:
                del self._bells[key]
            self._clear_if_none()

    def _clear_if_none(self) -> None:
        if not self._bells and not self._watches:
            self.anyone.clear()


class _Watch:
    """One watch: the changes that it has not yielded yet, or that it has `missed` some."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.bell = asyncio.Event()
        self.changes: deque[Change] = deque()
        # What changed before the watch began is unknown to the reader, so its first item is a `Missed`.
        self.missed = True

    def take(self, change: Change) -> None:
        self.changes.append(change)
        # A reader that is stuck must not hold the changes of a whole day in memory.
        if len(self.changes) > _MOST_BEHIND:
            self.miss()
        self.bell.set()

    def miss(self) -> None:
        self.changes.clear()
        self.missed = True
        self.bell.set()
