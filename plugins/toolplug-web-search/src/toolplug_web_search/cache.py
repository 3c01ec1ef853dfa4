"""What was found before, with its age."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")


class Aged(NamedTuple, Generic[V]):
    """A value, and the seconds since it was put in."""

    value: V
    age_s: float


class Cache(Generic[V]):
    """At most `size` values; the one that was not used for the longest time goes first. Nothing expires by itself."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._size = size
        self._clock = clock
        self._values: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def get(self, key: Hashable, within_s: float) -> Aged[V] | None:
        """Return the value if it is younger than `within_s` seconds."""
        found = self._values.get(key)
        if found is None:
            return None
        age_s = self._clock() - found[0]
        if age_s >= within_s:
            return None
        self._values.move_to_end(key)
        return Aged(found[1], age_s)

    def put(self, key: Hashable, value: V) -> None:
        """Keep a value."""
        self._values[key] = (self._clock(), value)
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)
