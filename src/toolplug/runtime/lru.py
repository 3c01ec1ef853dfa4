"""A bounded mapping that keeps what was used last.

Not `functools.lru_cache`: values are put in by hand and dropped when their owner ends. Not `cachetools`: it would be a
dependency of the core for these few lines.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LeastRecentlyUsed(Generic[K, V]):
    """At most `most` values; beyond that, the one whose last use is the longest ago is dropped.

    Not safe to use from several threads at once.

    ```python
    from toolplug.runtime import LeastRecentlyUsed

    recent = LeastRecentlyUsed[str, int](2)
    recent.put("a", 1)
    recent.put("b", 2)
    recent.get("a")
    recent.put("c", 3)
    assert "b" not in recent
    ```
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value and mark it as used; None if there is none."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Store the value and mark it as used."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def drop(self, key: K) -> None:
        """Remove the value, if there is one."""
        self._values.pop(key, None)

    def items(self) -> tuple[tuple[K, V], ...]:
        """Return all keys and values, which are not used by that."""
        return tuple(self._values.items())

    def __contains__(self, key: K) -> bool:
        return key in self._values
