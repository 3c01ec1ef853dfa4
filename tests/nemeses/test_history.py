"""The checker of histories finds nothing in a session that three processes serve, and every bug that is put into it."""

from __future__ import annotations

from math import inf

import pytest
from tests.nemeses.broken_stores import SEEDED
from tests.nemeses.history import Entry, History, Read, Update
from tests.nemeses.session_world import Parts, history_of

pytestmark = pytest.mark.requirement("I17-6-checker")

MOST = 60
"""Worlds of eight seconds in which a bug must show; each of them shows in every second one or third."""


@pytest.mark.slow
def test_three_processes_that_are_paused_and_cut_off_serve_a_linearizable_session() -> None:
    history = history_of(Parts(), 17, 20)
    assert history.violations() == []
    assert len([update for update in history.updates if update.revision is not None]) > 10
    assert len(history.reads) > 30
    assert len(history.entries) > 30


@pytest.mark.judge
@pytest.mark.parametrize("seed", range(10))
def test_so_they_do_whatever_the_numbers(seed: int) -> None:
    assert history_of(Parts(), seed, 40).violations() == []


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "sign"), [(bug, sign) for bug, (_, sign) in SEEDED.items()])
def test_the_checker_finds(bug: str, sign: str) -> None:
    parts, _ = SEEDED[bug]
    assert any(sign in violation for seed in range(MOST) for violation in history_of(parts, seed, 8).violations())


def update(number: int, began: float, ended: float = inf, revision: int | None = None, **more: bool) -> Update:
    return Update(writer="w", number=number, began=began, ended=ended, revision=revision, **more)


def read(revision: int, number: int, began: float, ended: float) -> Read:
    return Read(process="p", began=began, ended=ended, revision=revision, numbers={"w": number})


def entry(position: int, revision: int, number: int, reader: str = "r", after: int | None = None) -> Entry:
    return Entry(reader=reader, position=position, after=after, revision=revision, change=(("w", number),))


def test_operations_that_overlap_may_come_in_either_order() -> None:
    history = History(
        [update(1, 0, 1, 2), update(2, 2, 9, 3), update(3, 10)],
        [read(2, 1, 3, 8), read(3, 2, 3, 4), read(2, 1, 3, 5), read(4, 3, 11, 12), read(4, 3, 13, 14)],
        [entry(5, 2, 1), entry(9, 3, 2, after=2), entry(5, 2, 1, "other"), entry(11, 4, 3, "other")],
    )
    assert history.violations() == []


@pytest.mark.parametrize(
    ("history", "sign"),
    [
        (History([update(1, 0, 1, 2)], [read(1, 0, 2, 3)]), "began after revision 2 had been answered"),
        (History([], [read(2, 0, 0, 1), read(1, 0, 2, 3)]), "began after revision 2 had been answered"),
        (History([update(1, 0, 3, 2), update(2, 2, 3, 2)]), "was given twice"),
        (History([update(1, 0, 1, 2)], [read(3, 0, 2, 3)]), "misses"),
        (History([update(1, 0, 5, 2)], [read(1, 1, 2, 3)]), "is ahead of"),
        (History([update(1, 0)], [read(2, 1, 1, 2), read(2, 0, 1, 2)]), "differs"),
        (History([update(1, 0, 1, refused=True)], [read(2, 1, 2, 3)]), "refused or not asked for"),
        (History([update(1, 4)], [read(2, 1, 2, 3)]), "refused or not asked for"),
        (History([], [], [entry(5, 2, 1), entry(6, 2, 1, "other")]), "in the log twice"),
        (History([], [], [entry(5, 2, 1), entry(5, 2, 2, "other")]), "was used twice"),
        (History([], [], [entry(5, 2, 1), entry(5, 2, 1)]), "sent again"),
        (History([], [], [entry(5, 2, 1), entry(6, 4, 1, after=2)]), "follows revision 2"),
        (History([], [], [entry(5, 3, 1), entry(6, 2, 1, "other")]), "the log has"),
        (History([update(1, 0, 1, 2)], [], [entry(5, 2, 7)]), "is not"),
    ],
)
def test_a_history_in_which_one_thing_is_wrong(history: History, sign: str) -> None:
    assert any(sign in violation for violation in history.violations())
