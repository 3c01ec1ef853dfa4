"""The play of `test_machine` finds each bug that is put into it; a test that finds nothing shows nothing."""

from __future__ import annotations

import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test
from tests.playing import playing
from tests.sessions.machine import SessionsMachine
from tests.sessions.seeded_bugs import SEEDED

ONE_ROUND = playing(2_000, 60, derandomize=True, database=None, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.mark.judge
@pytest.mark.requirement("I3-seeded-bugs")
@pytest.mark.parametrize("bug", SEEDED)
def test_the_play_finds(bug: str) -> None:
    class Buggy(SessionsMachine):
        seams = SEEDED[bug]

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Buggy, settings=ONE_ROUND)
