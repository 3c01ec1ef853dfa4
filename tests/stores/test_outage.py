"""What the log says of a store that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug.errors import StoreUnavailable
from toolplug.sqlite.writer import QUIET_S, FailureLog
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.requirement("H-store-disk-full")
FULL = StoreUnavailable("state.db: database or disk is full")


def test_an_outage_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    outage = FailureLog(Path("state.db"))
    outage.record_success()
    for _ in range(100):
        outage.record_failure(FULL)
    outage.record_success()
    outage.record_success()
    assert caplog.messages == [
        "changes cannot be kept: state.db: database or disk is full",
        "state.db can be written again",
    ]


def test_a_disk_that_is_full_now_and_then_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outage = FailureLog(Path("state.db"), clock=clock)
    for _ in range(100):
        outage.record_failure(FULL)
        outage.record_success()
    assert len(caplog.messages) == 2
    clock.now += QUIET_S
    outage.record_failure(FULL)
    assert len(caplog.messages) == 3
