"""A lock for each key, so that work for one key never waits for that of another."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)


class KeyedLocks(Generic[K]):
    """Locks by key. A lock exists only as long as a task holds it or waits for it, so that any number of keys may come.

    ```python
    from toolplug.runtime import KeyedLocks

    locks = KeyedLocks[str]()


    async def count(name: str, counts: dict[str, int]) -> None:
        async with locks.of(name):
            counts[name] = counts.get(name, 0) + 1
    ```
    """

    def __init__(self) -> None:
        # Weak, so that no holder is counted: a waiting task's own frame keeps the lock of its key alive.
        self._locks: WeakValueDictionary[K, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: K) -> asyncio.Lock:
        """Return the lock of this key: the same one for all that use it at a time."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def __len__(self) -> int:
        return len(self._locks)
