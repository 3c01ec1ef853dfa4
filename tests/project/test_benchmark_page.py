"""The table of docs/reference/benchmarks.md has the rows and limits of the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.frame import MILLISECONDS, Figure, Row
from benchmarks.page import PAGE, table_of, write_page
from benchmarks.table import title
from tests.requirement_table import ROOT

WITHOUT_PEERS = """
import sys
from types import ModuleType

class Peers(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

sys.modules["benchmarks.peers"] = Peers("benchmarks.peers")  # the other libraries are in an environment of their own
from benchmarks.__main__ import FAMILIES, rows_of
from benchmarks.page import limits
for family in FAMILIES:
    for row in rows_of(family):
        print("|".join(limits(row)))
"""


@pytest.mark.process
@pytest.mark.requirement("C-11-table")
def test_the_page_has_every_row_with_its_limits_and_a_figure() -> None:
    command = [sys.executable, "-c", WITHOUT_PEERS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    rows = table_of(PAGE.read_text("utf-8"))
    assert ["|".join(row[:3]) for row in rows] == done.stdout.splitlines(), "run `python -m benchmarks --page`"
    assert [row[0] for row in rows if not row[3]] == []


def test_a_run_writes_its_own_figures_and_keeps_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    head = "Text.\n\n| row | hold | aim | seen |\n| --- | --- | --- | --- |\n"
    page.write_text(f"{head}| old | 1 | 1 | 7 ms |\n| kept | 3 | 2 | 1/4.0 |\n\nMore.\n", "utf-8")
    kept = Row(name="a", against="b", ours=None, hold=1 / 3, aim=0.25)  # type: ignore[arg-type]  it is not measured
    new = Row(name="new", ours=None, hold=1000, aim=500, unit=MILLISECONDS)  # type: ignore[arg-type]  as above
    page.write_text(page.read_text("utf-8").replace("| kept |", f"| {title(kept)} |"), "utf-8")
    write_page([kept, new], [Figure(row=new, ours=0.0, other=None, low=1, median=74.31, high=99)], page)
    assert page.read_text("utf-8") == (
        f"{head}| a / b | 1/3 | 1/4 | 1/4.0 |\n| new | 1,000 ms | 500 ms | 74.3 ms |\n\nMore.\n"
    )
