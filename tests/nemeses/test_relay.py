"""The relay of three processes that are killed and paused: nothing is wrong with it, and every seeded bug is found."""

from __future__ import annotations

import pytest
from tests.nemeses.broken_relays import SEEDED
from tests.nemeses.relay_world import Parts, RelayWorld

from toolplug.catalog.call import ToolStatus

pytestmark = pytest.mark.requirement("I17-6-relay")

MOST = 80
"""Worlds in which a bug must show; each of them shows in every second to tenth one."""


@pytest.mark.slow
def test_each_call_ends_as_it_must() -> None:
    run(seed=17, calls=100)


@pytest.mark.judge
@pytest.mark.parametrize("seed", range(5))
def test_so_do_thousands(seed: int) -> None:
    world = run(seed, calls=600)
    assert world.harms > 5


def run(seed: int, calls: int) -> RelayWorld:
    world = RelayWorld(Parts(), seed)
    world.run(calls)
    assert world.violations == []
    answered = [one for one in world.calls if one.result is not None and one.result.status is ToolStatus.SUCCESS]
    assert len(answered) > calls / 10
    return world


@pytest.mark.judge
@pytest.mark.parametrize("bug", SEEDED)
def test_the_simulation_finds(bug: str) -> None:
    parts, sign = SEEDED[bug]
    for seed in range(MOST):
        world = RelayWorld(parts, seed)
        world.run(150)
        if any(sign in violation for violation in world.violations):
            return
    pytest.fail("not found")
