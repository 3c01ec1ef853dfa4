"""Each worker begins with its share of the long tests, and no test is lost."""

from __future__ import annotations

import pytest
from tests.order import order


@pytest.mark.parametrize(("workers", "most"), [(1, 210), (2, 120), (3, 90), (4, 90)])
def test_the_part_of_each_worker_begins_with_a_like_share_of_the_long_tests(workers: int, most: int) -> None:
    seconds = [0, 60, 0, 30, 0, 0, 90, 0, 0, 0, 30, 0, 0, 0, 0, 0, 0, 0, 0]
    ordered = order(seconds, workers)
    assert sorted(ordered) == list(range(len(seconds)))
    shares: list[float] = []
    begin = 0
    for worker in range(workers):
        part = ordered[begin : begin + (len(seconds) - begin) // (workers - worker)]
        begin += len(part)
        lengths = [seconds[number] for number in part]
        assert lengths == sorted(lengths, reverse=True), "the longest is first"
        short = [number for number in part if not seconds[number]]
        assert short == sorted(short), "the others are in their order, as fixtures of modules need"
        shares.append(sum(lengths))
    assert max(shares) == most


def test_more_long_tests_than_a_part_has_room_for_are_kept() -> None:
    assert sorted(order([30, 30, 600, 30], 2)) == [0, 1, 2, 3]
    assert order([], 3) == []
