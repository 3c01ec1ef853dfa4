"""Any run of commits, extensions, reads, deaths and hours: memory and SQLite answer as one small model does."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.playing import AT_LENGTH, playing

from toolplug.errors import StoreConflict
from toolplug.sqlite.store import SqliteStore
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import Event, Events, Store
from toolplug.testing.store_fixtures import ManualClock

KEPT = 3
KEYS = st.sampled_from(["a", "a/b"])


@dataclass
class ModelRecord:
    """What a record must be; `positions` are all that its log gave out, the first one before any event."""

    value: bytes
    revision: int
    expires_at: float | None
    positions: list[int]
    events: list[bytes] = field(default_factory=list[bytes])

    def append(self, events: list[bytes], end: int) -> None:
        """Take the events of one change, whose last one has the position `end`."""
        self.positions += range(end - len(events) + 1, end + 1)
        self.events += events

    def after(self, position: int) -> Events:
        if position not in self.positions:
            return Events(known=False)
        at = self.positions.index(position)
        # The first kept position is the oldest kept event's, or the beginning where nothing was dropped.
        if len(self.events) > KEPT and at <= len(self.events) - KEPT:
            return Events(known=False)
        ids = self.positions[at + 1 :]
        return Events(known=True, entries=tuple(map(Event, ids, self.events[at:])))


class TwoStores(RuleBasedStateMachine):
    """Each store has a model of its own: positions and first revisions are a store's own choice."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.stores: list[Store] = [
            MemoryStore(clock=self.clock, kept_events=KEPT),
            SqliteStore(Path(self.folder.name) / "state.db", clock=self.clock, kept_events=KEPT),
        ]
        self.models: list[dict[str, ModelRecord]] = [{}, {}]
        self.highest: list[dict[str, int]] = [{}, {}]
        for store in self.stores:
            self.runner.run(store.__aenter__())

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.aclose())
        self.runner.close()
        self.folder.cleanup()

    @rule(
        key=KEYS,
        value=st.none() | st.binary(max_size=3),
        events=st.lists(st.binary(max_size=2), max_size=5),
        ttl_s=st.none() | st.integers(1, 3).map(float),
        off=st.sampled_from([None, None, 0, 0, 1, -1]),
    )
    def commit(self, key: str, value: bytes | None, events: list[bytes], ttl_s: float | None, off: int | None) -> None:
        events = events if value is not None else []
        for which, store in enumerate(self.stores):
            there = self.models[which].get(key)
            revision = there.revision if there else 0
            expected = None if off is None else max(0, revision + off)
            committing = store.commit(key, value, expected=expected, ttl_s=ttl_s, events=events)
            if expected not in (None, revision):
                with pytest.raises(StoreConflict) as caught:
                    self.runner.run(committing)
                assert caught.value.actual == revision
                continue
            self._committed(which, key, value, events, ttl_s, self.runner.run(committing))

    def _committed(
        self, which: int, key: str, value: bytes | None, events: list[bytes], ttl_s: float | None, revision: int
    ) -> None:
        model = self.models[which]
        there = model.get(key)
        if value is None and there is None:
            assert revision == 0
            return
        if there is not None:
            assert revision == there.revision + 1
        assert revision > self.highest[which].get(key, 0)
        self.highest[which][key] = revision
        if value is None:
            del model[key]
            return
        record = self.runner.run(self.stores[which].read(key))
        assert record is not None
        if there is None:
            # How far the events reach back from the end; gaps are the store's choice, none are between one commit's.
            there = ModelRecord(value, revision, None, [record.position - len(events)])
            model[key] = there
        there.value, there.revision = value, revision
        there.expires_at = None if ttl_s is None else self.clock.now + ttl_s
        there.append(events, record.position)

    @rule(
        key=KEYS,
        events=st.lists(st.binary(max_size=2), max_size=5),
        ttl_s=st.none() | st.integers(1, 3).map(float),
    )
    def extend(self, key: str, events: list[bytes], ttl_s: float | None) -> None:
        for store, model in zip(self.stores, self.models, strict=True):
            there = model.get(key)
            assert self.runner.run(store.extend(key, events=events, ttl_s=ttl_s)) is (there is not None)
            if there is None:
                continue
            record = self.runner.run(store.read(key))
            assert record is not None
            there.expires_at = there.expires_at if ttl_s is None else self.clock.now + ttl_s
            there.append(events, record.position)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.now += seconds
        for model in self.models:
            for key, record in list(model.items()):
                if record.expires_at is not None and record.expires_at <= self.clock.now:
                    del model[key]

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.stores[1].aclose())
        self.runner.run(self.stores[1].__aenter__())

    @rule(key=KEYS, position=st.integers(-1, 40))
    def look(self, key: str, position: int) -> None:
        for store, model in zip(self.stores, self.models, strict=True):
            expected = model[key].after(position) if key in model else Events(known=False)
            assert self.runner.run(store.events(key, position)) == expected

    @invariant()
    def records_and_logs_are_as_the_model_says(self) -> None:
        for store, model in zip(self.stores, self.models, strict=True):
            assert self.runner.run(store.keys()) == sorted(model)
            for key, expected in model.items():
                record = self.runner.run(store.read(key))
                assert record is not None
                assert (record.value, record.revision) == (expected.value, expected.revision)
                assert (record.expires_at, record.position) == (expected.expires_at, expected.positions[-1])
                for position in expected.positions[-KEPT - 2 :]:
                    assert self.runner.run(store.events(key, position)) == expected.after(position)


@pytest.mark.slow
@pytest.mark.requirement("I2-2a-laws", "LAW-7")
class TestTwoStores(TwoStores.TestCase):
    settings = settings(
        max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


@pytest.mark.judge
@pytest.mark.timeout(1200)
@pytest.mark.requirement("I2-2a-laws")
class TestTwoStoresAtLength(TwoStores.TestCase):
    settings = playing(70 * AT_LENGTH, 50)
