"""How the benchmarks take a figure and print it."""

from __future__ import annotations

import ast
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module

import pytest
from benchmarks.frame import Batch, Row, Side, measure
from benchmarks.table import line, verdict
from tests.requirement_table import ROOT


def side(name: str, cost_s: float, turns: list[str]) -> Side:
    """One whose operation costs exactly this, and that notes each of its batches."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Batch]:
        async def batch(n: int) -> float:
            turns.append(name)
            return n * cost_s

        yield batch

    return opened


def test_what_a_benchmark_imports_from_toolplug_exists() -> None:
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "toolplug":
                module = import_module(str(node.module))
                missing = [each.name for each in node.names if not hasattr(module, each.name)]
                assert not missing, f"{path.name}:{node.lineno}: {node.module} has no {', '.join(missing)}"


@pytest.mark.anyio
@pytest.mark.requirement("C-11-table")
async def test_a_row_is_the_ratio_of_two_sides_that_took_turns_in_one_run() -> None:
    turns: list[str] = []
    row = Row(
        name="ours",
        ours=side("A", 1e-3, turns),
        other=side("B", 4e-3, turns),
        against="theirs",
        hold=1 / 3,
        aim=1 / 5,
        pairs=4,
        batch_s=1e-3,
    )
    figure = await measure(row)
    assert turns[-8:] == ["A", "B", "B", "A", "A", "B", "B", "A"]
    assert (figure.ours, figure.other, figure.low, figure.median, figure.high) == (1e-3, 4e-3, 0.25, 0.25, 0.25)
    assert verdict(figure) == "held"
    assert line(figure).split() == (
        [
            "ours",
            "/",
            "theirs",
            "1000.000",
            "µs",
            "4000.000",
            "µs",
            "1/4.0",
            "[1/4.0",
            "1/4.0]",
            "1/3.0",
            "1/5.0",
            "held",
        ]
    )
