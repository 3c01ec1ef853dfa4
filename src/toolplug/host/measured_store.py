"""A store that measures how long each operation of another one takes, and counts those that fail; its histogram."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Collection, Sequence
from itertools import accumulate
from time import perf_counter
from typing import Literal, TypeVar, get_args

from toolplug.errors import StoreConflict
from toolplug.stores.store import DelegatingStore, Record, Store

T = TypeVar("T")
Operation = Literal["read", "commit", "extend", "keys"]


FAST_BUCKETS = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
"""Upper bounds in seconds, for what takes milliseconds as a rule: requests to the host, operations of the store."""


class Durations:
    """How many durations were up to each bound of `FAST_BUCKETS`, and their sum in seconds.

    They are plain integers that a scrape reads: recording one costs about 0.2 µs.
    """

    __slots__ = ("_counts", "seconds")

    def __init__(self) -> None:
        self._counts: list[int] = [0] * (len(FAST_BUCKETS) + 1)
        self.seconds: float = 0.0

    def record(self, seconds: float) -> None:
        """Count one duration."""
        # `bisect_left`: the bounds of Prometheus are inclusive (`le`).
        self._counts[bisect_left(FAST_BUCKETS, seconds)] += 1
        self.seconds += seconds

    def cumulate(self) -> list[tuple[str, float]]:
        """Return `(upper bound, durations up to it)` for each bucket, as the exposition format of Prometheus has it."""
        return list(zip([*map(str, FAST_BUCKETS), "+Inf"], map(float, accumulate(self._counts)), strict=True))


class MeasuredStore(DelegatingStore):
    """A `Store` over another one. `took` has the durations by operation, `failed` the errors but for conflicts.

    `read` includes `revisions`. `events` and `watch` are not measured, as they wait for other processes.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.took: dict[Operation, Durations] = {operation: Durations() for operation in get_args(Operation)}
        self.failed: Counter[Operation] = Counter()

    async def read(self, key: str) -> Record | None:
        """Return the live record, or `None`."""
        return await self._measure("read", self._store.read(key))

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the keys of live records."""
        return await self._measure("keys", self._store.keys(prefix, after=after, limit=limit))

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        """Return the revisions of records."""
        return await self._measure("read", self._store.revisions(keys))

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        """Append events and renew the time to live."""
        return await self._measure("extend", self._store.extend(key, events=events, ttl_s=ttl_s, to=to))

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
        """Write the record and append the events."""
        written = self._store.commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
        return await self._measure("commit", written)

    async def _measure(self, operation: Operation, result: Awaitable[T]) -> T:
        began = perf_counter()
        try:
            return await result
        # An answer, not a failure: the caller has asked whether it is the first.
        except StoreConflict:
            raise
        except Exception:
            self.failed[operation] += 1
            raise
        finally:
            self.took[operation].record(perf_counter() - began)
