"""Records of the store that a process has in memory, and that follow what other processes write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from toolplug.errors import StoreError, StoreRefused
from toolplug.runtime.tasks import JoinedRuns
from toolplug.stores.store import Change, Missed, Store, key_pages

PAUSE_S = 1.0
"""Between two tries while the store cannot answer."""

_AT_ONCE = 50
"""Records that are read concurrently."""
_LOG = logging.getLogger("toolplug.stores")

T = TypeVar("T")


class Follower:
    """A task that follows the changes of records under a prefix.

    It calls `hear(change)` for each change, and `look()` at the start and whenever it may have missed one. Where these
    raise `StoreError`, it tries again until the store can answer, and then looks.

    ```python
    import asyncio

    from toolplug.cluster import Follower
    from toolplug.stores import Change, MemoryStore

    async def main():
        heard = asyncio.Queue[Change]()

        async def look() -> None:
            print("read all orders")

        async with MemoryStore() as store:
            follower = Follower(store, "order/", heard.put, look)
            await follower.start()
            await store.commit("order/7", b"paid")
            assert (await heard.get()).key == "order/7"
            await follower.aclose()

    asyncio.run(main())
    ```
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        hear: Callable[[Change], Awaitable[None]],
        look: Callable[[], Awaitable[None]],
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._hear = hear
        self._look = look
        self._pause_s = pause_s
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look, and follow all changes since before that. Raises `StoreError`."""
        changes = self._store.watch(self._prefix)
        try:
            # The first item, a `Missed`, says that the watch has begun: what is written from here on is heard, and the
            # look that follows finds all from before.
            await anext(changes)
            await self._look()
        except BaseException:
            await changes.aclose()
            raise
        self._task = asyncio.create_task(self._follow(changes), name=f"toolplug-{self._prefix}")

    async def aclose(self) -> None:
        """Stop following, and wait until the task has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _follow(self, changes: AsyncGenerator[Change | Missed]) -> None:
        # Only the first of a row of failures is logged; a success ends the row.
        failing = False
        while True:
            try:
                async with aclosing(changes):
                    async for change in changes:
                        if isinstance(change, Missed):
                            await self._look()
                        else:
                            await self._hear(change)
                        failing = False
            except StoreError as error:
                if not failing:
                    _LOG.warning("changes of other processes (%s) are not heard: %s", self._prefix, error)
                failing = True
                await asyncio.sleep(self._pause_s)
            # The first item of a new watch is a `Missed`.
            changes = self._store.watch(self._prefix)


class FollowedRecords(Generic[T]):
    """Copies of all records under a prefix.

    `load(value)` makes a copy of a record's value; a record for which it raises `ValueError` or `StoreRefused` is
    logged and treated as missing, and `unreadable` has its key. `changed` is called with the new copies by key, `None`
    for a record that is gone or cannot be read: at the start, after each write of this process through `put`, and
    whenever another process has changed some. `writing` returns the lock of a record, which may be one for all: it is
    held while the copy is replaced by what others have written; a writer holds it from its `commit` to `put`. An expiry
    is noticed with the next `Missed` of the store.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        load: Callable[[bytes], Awaitable[T]],
        changed: Callable[[Mapping[str, T | None]], None],
        writing: Callable[[str], asyncio.Lock],
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.prefix: str = prefix
        self._store = store
        self._load = load
        self._changed = changed
        self._writing = writing
        self._follower = Follower(store, prefix, self._hear, self.look, pause_s=pause_s)
        self._copies: dict[str, T] = {}
        self.unreadable: frozenset[str] = frozenset()
        self._revisions: dict[str, int] = {}
        self._fresh = JoinedRuns(self._refresh, f"toolplug-{prefix}-fresh")

    async def start(self) -> None:
        """Copy every record, and follow changes until `aclose`. Raises `StoreError`."""
        await self._follower.start()

    async def aclose(self) -> None:
        """Stop following, and wait until all trips have ended."""
        await self._follower.aclose()
        await self._fresh.aclose()

    def get(self, key: str) -> T | None:
        """Return the copy of a record, without asking the store; `None` if there is none."""
        return self._copies.get(key)

    def put(self, key: str, revision: int, copy: T | None) -> None:
        """Replace a copy by what `commit` has written, with its result; `copy` is `None` for a deleted record."""
        found: set[str] = set()
        self._take(key, 0 if copy is None else revision, copy, found)
        self._tell(found)

    async def fresh(self, keys: Collection[str]) -> None:
        """Make the copies of these records as new as this call. Raises `StoreError`.

        All that ask before the question is sent share it: one `revisions`, and a `read` of each record that is newer.
        """
        if keys:
            await self._fresh.join(*keys)

    async def _refresh(self, wanted: Collection[str]) -> None:
        # Numbers only; values are read where the number is another one.
        revisions = await self._store.revisions(wanted)
        await self._read([key for key, revision in revisions.items() if revision != self._revisions.get(key, 0)])

    async def look(self) -> None:
        """Make all copies as new as this call, and find new records. Raises `StoreError`."""
        # Taken before the pages: what is found on the way was read just now.
        known = frozenset(self._revisions)
        async for page in key_pages(self._store, self.prefix):
            await self._read([key for key in page if key not in known])
        await self.fresh(known)

    async def _read(self, keys: Collection[str]) -> None:
        by_lock: dict[asyncio.Lock, list[str]] = {}
        for key in keys:
            by_lock.setdefault(self._writing(key), []).append(key)
        groups = [*by_lock.items()]
        for at in range(0, len(groups), _AT_ONCE):
            batch = groups[at : at + _AT_ONCE]
            reads = (self._read_locked(lock, locked) for lock, locked in batch)
            # All have ended before the first error is raised: a `gather` that raises leaves the others running, with
            # their locks.
            for error in await asyncio.gather(*reads, return_exceptions=True):
                if error is not None:
                    raise error

    async def _read_locked(self, lock: asyncio.Lock, keys: Collection[str]) -> None:
        async with lock:
            await self._take_over(keys)

    async def _take_over(self, keys: Collection[str]) -> None:
        found: set[str] = set()
        names = [*keys]
        try:
            for at in range(0, len(names), _AT_ONCE):
                batch = names[at : at + _AT_ONCE]
                ended = await asyncio.gather(*(self._read_one(key, found) for key in batch), return_exceptions=True)
                for error in ended:
                    if error is not None:
                        raise error
        finally:
            # Also after an error: copies that were taken over have been replaced, and those who follow them must hear
            # it.
            self._tell([key for key in keys if key in found])

    async def _read_one(self, key: str, found: set[str]) -> None:
        record = await self._store.read(key)
        if record is None:
            self._take(key, 0, None, found)
        elif record.revision != self._revisions.get(key, 0):
            self._take(key, record.revision, await self._load_value(key, record.value), found)

    async def _load_value(self, key: str, value: bytes) -> T | None:
        try:
            return await self._load(value)
        except (ValueError, StoreRefused) as error:
            _LOG.error("record %s cannot be read and is not used: %s", key, error)
            return None

    def _take(self, key: str, revision: int, copy: T | None, found: set[str]) -> None:
        if revision:
            self._revisions[key] = revision
        else:
            self._revisions.pop(key, None)
        if copy is not None:
            self._copies[key] = copy
            found.add(key)
        elif self._copies.pop(key, None) is not None:
            found.add(key)
        # A new frozenset, since readers may hold the last one.
        if (copy is None and revision > 0) != (key in self.unreadable):
            self.unreadable ^= {key}
            found.add(key)

    def _tell(self, found: Collection[str]) -> None:
        if found:
            self._changed({key: self._copies.get(key) for key in found})

    async def _hear(self, change: Change) -> None:
        async with self._writing(change.key):
            known = self._revisions.get(change.key, 0)
            if change.revision == known:
                return
            # A hint may be late: a deletion may have been followed by a new record, and the other way round.
            if not known or not change.revision or change.value is None:
                # A record that is unknown here may be deleted again by now, so that its value is read.
                await self._take_over([change.key])
            elif change.revision > known:
                found: set[str] = set()
                self._take(change.key, change.revision, await self._load_value(change.key, change.value), found)
                self._tell(found)
