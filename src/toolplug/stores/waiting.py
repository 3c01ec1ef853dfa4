"""Readers that wait for the next event of a log, or for any change under a prefix."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress

from toolplug.stores.changes import BatchResult
from toolplug.stores.store import Change, Events, Missed

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
