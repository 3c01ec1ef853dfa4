"""The SQLite store keeps the laws."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from toolplug.sqlite.store import SqliteStore
from toolplug.stores.store import Store
from toolplug.testing import store_event_laws, store_laws, store_record_laws


class _Sqlite:
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[..., Store]:
        return partial(SqliteStore, tmp_path / "state.db")


@pytest.mark.requirement("I2-2a-laws")
class TestRecords(_Sqlite, store_record_laws.RecordLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-cas")
class TestRevisions(_Sqlite, store_record_laws.RevisionLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-ttl", "H-time-ttl")
class TestExpiry(_Sqlite, store_record_laws.ExpiryLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-keys")
class TestKeys(_Sqlite, store_record_laws.KeyLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-atomic", "I2-2a-events")
class TestEvents(_Sqlite, store_event_laws.EventLaws): ...


@pytest.mark.requirement("I2-2a-laws", "I2-2a-events")
class TestWaits(_Sqlite, store_event_laws.WaitLaws): ...


@pytest.mark.slow
@pytest.mark.requirement("I2-2a-laws", "I2-2a-atomic", "I2-2a-events", "I2-2a-ttl")
class TestExtensions(_Sqlite, store_event_laws.ExtensionLaws): ...


@pytest.mark.requirement("I2-2a-laws")
class TestWatches(_Sqlite, store_laws.WatchLaws): ...


@pytest.mark.requirement("I2-2a-laws")
class TestVolatile(_Sqlite, store_laws.VolatileLaws): ...


@pytest.mark.slow
@pytest.mark.requirement("I2-2a-laws", "I2-2a-survives", "I2-2a-cas")
class TestSharing(_Sqlite, store_laws.SharedStoreLaws): ...


class _Shared:
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[..., Store]:
        return partial(SqliteStore, tmp_path / "state.db", shared=True)


@pytest.mark.slow
@pytest.mark.requirement("I17-1-shared")
class TestSharedWatches(_Shared, store_laws.WatchLaws): ...


@pytest.mark.slow
@pytest.mark.requirement("I17-1-shared")
class TestSharedWaits(_Shared, store_event_laws.WaitLaws): ...


@pytest.mark.slow
@pytest.mark.requirement("I17-1-shared")
class TestShared(_Shared, store_laws.SharedStoreLaws): ...
