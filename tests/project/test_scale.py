"""What the page on several processes computes follows from what it says was measured."""

from __future__ import annotations

import pytest
from benchmarks import scale
from tests.requirement_table import ROOT


@pytest.mark.requirement("I17-7-scale")
def test_the_computed_table_follows_from_the_measured_one() -> None:
    page = (ROOT / scale.PAGE).read_text("utf-8")
    section = page.partition(scale.BEGIN)[2].partition(scale.END)[0]
    assert section.strip() == "\n".join(scale.shown(scale.read(page)))


@pytest.mark.requirement("I17-7-scale")
def test_costs_that_grow_need_more_processes() -> None:
    page = (ROOT / scale.PAGE).read_text("utf-8")
    costs = scale.read(page)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in scale.computed(costs)][2:]
    counts = [int(row[1]) for row in rows if row[1].isdigit()]
    assert counts == sorted(counts)
    assert len(counts) >= 2
