"""The table of requirements and the tests name each other."""

from __future__ import annotations

import difflib
import re

import pytest
from tests.requirement_table import Requirement, collect_links, lay_together, read_rows
from tests.requirements_report import counts, grouped

WORKS = {"registry", "sessions", "toolsets", "mcp", "responses", "replicas", "shipped providers"}


NUMBERS = ("I2-num-", "I3-num-", "I4-num-", "I5-num-", "I6-num-", "I14-num-", "LAW-2")
TIMES = {"DYN-AC-9", "DYN-OQ-4", "C-6-numbers"}
"""Rows of the documents that name a time: no test may measure one."""


@pytest.mark.slow
@pytest.mark.requirement("I2-1-table")
def test_the_table_and_the_tests_agree() -> None:
    laid = lay_together(read_rows(), collect_links())
    known = [row.id for row in laid.rows]
    problems: list[str] = []
    if laid.missing:
        problems.append(f"no test names these rows:\n{grouped(laid.missing)}\n{counts(laid)}")
    problems += [
        f"{row} is no row (near: {', '.join(difflib.get_close_matches(row, known)) or 'nothing'}): {', '.join(tests)}"
        for row, tests in laid.unknown.items()
    ]
    problems += [f"{row} has two rows" for row in laid.doubled]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_every_row_has_a_well_formed_id_a_source_a_sentence_and_a_known_part() -> None:
    for row in read_rows():
        assert re.fullmatch(r"[A-Z][A-Z0-9]*(-[A-Za-z0-9]+)+", row.id), row
        assert row.source, row
        assert row.text.endswith("."), row
        assert row.work in WORKS, row


def test_only_numbers_are_shown_by_something_else_than_a_test() -> None:
    assert [
        row.id for row in read_rows() if row.shown_by and not row.id.startswith(NUMBERS) and row.id not in TIMES
    ] == []


def row(name: str, work: str = "registry", shown_by: str = "") -> Requirement:
    return Requirement(id=name, source="here", text="It holds.", work=work, shown_by=shown_by)


@pytest.mark.requirement("I2-1-table")
@pytest.mark.parametrize("work", sorted(WORKS))
def test_a_row_without_a_test_is_missing_whatever_its_part(work: str) -> None:
    laid = lay_together([row("A-1", work=work), row("A-2", work=work)], {"test_one": ["A-1"]})
    assert [each.id for each in laid.missing] == ["A-2"]


@pytest.mark.requirement("I2-1-table")
def test_a_test_that_names_no_row_and_a_doubled_row_are_found() -> None:
    laid = lay_together([row("A-1"), row("A-1")], {"test_one": ["A-1", "A-9"], "test_two": ["A-9"]})
    assert laid.unknown == {"A-9": ("test_one", "test_two")}
    assert laid.doubled == ["A-1"]


@pytest.mark.requirement("I2-1-table")
def test_a_benchmark_shows_a_number_only_while_it_has_that_row() -> None:
    here = "tests/test_requirements.py"
    laid = lay_together([row("A-1", shown_by=f"{here}: WORKS = {{"), row("A-2", shown_by=f"{here}: WOR" + "STS")], {})
    assert [each.id for each in laid.missing] == ["A-2"]
