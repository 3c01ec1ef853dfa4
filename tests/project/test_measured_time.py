"""No test fails because the machine is slow: measured time has no upper bound in an assertion.

What to do instead: count the work, use virtual time, compare two sizes (`tests.cpu_cost.growth`) or the machine's own
speed (`tests.cpu_cost.cost`, `longest_callback`), or wait with a patience that only what never comes exhausts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

import pytest
from tests.project.sources import Source, sources
from tests.requirement_table import ROOT

pytestmark = pytest.mark.slow

CLOCKS = frozenset({"thread_time", "process_time", "perf_counter", "monotonic", "time"})
CLOCKS_NS = frozenset(f"{name}_ns" for name in CLOCKS)
CLOCK = re.compile(rf"\b({'|'.join(CLOCKS)})(_ns)?\(\)")
EXEMPT = re.compile(r"#.*\bgenerous: \S+")
"""A bound that only what never comes exceeds says why: `# generous: ten times the two seconds of the setting`."""

VIRTUAL = re.compile(r"\bVIRTUAL\b|\bVirtualLoop\b|tests\.sessions\.harness|tests\.discovery\.harness")
"""A file whose loop has virtual time, where the time of the loop is exact."""


def test_no_assertion_bounds_measured_time() -> None:
    found = [
        f"{source.name}:{line}"
        for source in sources("tests/**/*.py", "plugins/*/tests/**/*.py")
        if CLOCK.search(source.text)
        for line in bounded_times(source.tree, loops_count=not is_virtual(source))
        if not EXEMPT.search(source.text.splitlines()[line - 1])
    ]
    assert found == []


def test_pages_of_tests_are_late() -> None:
    """A test that reads a page at once, where it should wait, fails on every machine and not on slow ones alone."""
    opens = re.compile(r"\.new_context\(|chromium\.new_page\(")
    found = {source.name for source in sources("tests/**/*.py") if opens.search(source.text)}
    assert found == {"tests/browser/late_pages.py"}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("began = monotonic()\nwork()\nassert monotonic() - began < 5", True),
        (
            "began = time.thread_time()\nwork()\ntook_ms = (time.thread_time() - began) * 1000\nassert took_ms <= MOST",
            True,
        ),
        ("began = time.process_time_ns()\nassert 5 > time.process_time_ns() - began", True),
        ("before = loop.time()\nassert 9 <= loop.time() - before < 14", True),
        ("def took():\n    began = perf_counter()\n    return perf_counter() - began\nassert took() < 1", True),
        ("async def took():\n    b = perf_counter()\n    return perf_counter() - b\nassert await took() < 1", True),
        ("wire.opened = monotonic()\ndef age():\n    return monotonic() - wire.opened\nassert wire.age() < 1", True),
        ("while time.monotonic() < give_up_at:\n    pass", False),
        ("give_up_at = time.monotonic() + 30\nassert time.monotonic() < give_up_at", False),
        ("began = monotonic()\nassert monotonic() - began >= 5", False),
        ("began = monotonic()\nassert 5 <= monotonic() - began", False),
        ("assert growth(work, 100, 800) < 24", False),
    ],
)
def test_the_rule_knows_its_cases(code: str, found: bool) -> None:
    assert bool([*bounded_times(ast.parse(code), loops_count=True)]) is found


def is_virtual(source: Source) -> bool:
    """Tell if the file, or the conftest of its folder, has virtual time."""
    conftest = ROOT / PurePath(source.name).parent / "conftest.py"
    return bool(VIRTUAL.search(source.text) or (conftest.exists() and VIRTUAL.search(conftest.read_text("utf-8"))))


def bounded_times(tree: ast.Module, *, loops_count: bool) -> Iterator[int]:
    """Yield the line of each assertion that a measured time is below something that is no time."""
    nodes = [*ast.walk(tree)]
    times = _Times(nodes, loops_count)
    for node in nodes:
        if not isinstance(node, ast.Assert):
            continue
        for compared in ast.walk(node.test):
            if isinstance(compared, ast.Compare):
                operands = (compared.left, *compared.comparators)
                for left, operator, right in zip(operands, compared.ops, operands[1:], strict=False):
                    less, more = (left, right) if isinstance(operator, ast.Lt | ast.LtE) else (right, left)
                    ordered = isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
                    if ordered and times.measured(less) and not times.measured(more):
                        yield node.lineno


class _Times:
    """The names of a file whose values are readings of a clock, or come from the difference of two; functions, too."""

    def __init__(self, nodes: Iterable[ast.AST], loops_count: bool) -> None:
        self._loops_count = loops_count
        self._readings: set[str] = set()
        self._differences: set[str] = set()
        given = [*_values(nodes)]
        for names, holds in ((self._readings, self._has_reading), (self._differences, self.measured)):
            while found := {name for name, value in given if name not in names and holds(value)}:
                names.update(found)

    def measured(self, value: ast.expr) -> bool:
        """Tell if a time that has passed is part of the value."""
        return any(
            _name(node) in self._differences
            or (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Sub)
                and self._has_reading(node.left)
                and self._has_reading(node.right)
            )
            for node in ast.walk(value)
        )

    def _has_reading(self, value: ast.expr) -> bool:
        return any(_name(node) in self._readings or self._is_reading(node) for node in ast.walk(value))

    def _is_reading(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = _name(node.func)
        if name == "time" and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) != "time":
            return self._loops_count and not node.args
        return name in CLOCKS | CLOCKS_NS


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _values(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name with what is assigned to it, and each function's name with what it returns."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for each in getattr(target, "elts", [target]):
                    if isinstance(each, ast.Name | ast.Attribute):
                        yield _name(each), node.value
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and each.value is not None:
                    yield node.name, each.value
