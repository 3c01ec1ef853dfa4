"""The play of `test_machine` finds each bug that is put into it; a test that finds nothing shows nothing."""

from __future__ import annotations

import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test
from tests.discovery.machine import DiscoveryMachine
from tests.discovery.seeded_bugs import SEEDED
from tests.playing import playing

ONE_ROUND = playing(2_000, 30, derandomize=True, database=None, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.mark.judge
@pytest.mark.requirement("C-8-old-hash", "C-8-last-good", "C-8-recovered")
@pytest.mark.parametrize("bug", SEEDED)
def test_the_play_finds(bug: str) -> None:
    class Buggy(DiscoveryMachine):
        make = staticmethod(SEEDED[bug])

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Buggy, settings=ONE_ROUND)
