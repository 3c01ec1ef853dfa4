"""The memory store keeps the laws."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import Store
from toolplug.testing import store_event_laws, store_laws, store_record_laws


class _Memory:
    @pytest.fixture
    def open_store(self) -> Callable[..., Store]:
        return MemoryStore


@pytest.mark.requirement("I2-2a-laws")
class TestRecords(_Memory, store_record_laws.RecordLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-cas")
class TestRevisions(_Memory, store_record_laws.RevisionLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-ttl", "H-time-ttl")
class TestExpiry(_Memory, store_record_laws.ExpiryLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-keys")
class TestKeys(_Memory, store_record_laws.KeyLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-atomic", "I2-2a-events")
class TestEvents(_Memory, store_event_laws.EventLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-events")
class TestWaits(_Memory, store_event_laws.WaitLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-atomic", "I2-2a-events", "I2-2a-ttl")
class TestExtensions(_Memory, store_event_laws.ExtensionLaws): ...


@pytest.mark.requirement("I2-2a-laws")
class TestWatches(_Memory, store_laws.WatchLaws): ...


@pytest.mark.requirement("I2-2a-laws")
class TestVolatile(_Memory, store_laws.VolatileLaws): ...
