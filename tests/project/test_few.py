"""What `make coverage` leaves out: of each test some variants, of no test all."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.few import VARIANTS, sample


@pytest.mark.parametrize("count", [1, VARIANTS, VARIANTS + 1, 2 * VARIANTS, 101])
def test_a_test_has_one_variant_at_least_and_so_many_at_most_at_equal_distances(count: int) -> None:
    kept = sample(["test_x.py::test_alone", *(f"test_x.py::test_many[{number}]" for number in range(count))])
    numbers = [int(name.partition("[")[2].rstrip("]")) for name in kept[1:]]
    assert kept[0] == "test_x.py::test_alone"
    assert 1 <= len(numbers) <= VARIANTS
    assert (len(numbers) == count) is (count <= VARIANTS)
    assert len({after - before for before, after in pairwise(numbers)}) <= 1
    assert count - numbers[-1] <= 1 + count // len(numbers)
