"""The baseline excuses what it names, as long as that fails, and nothing else."""

from __future__ import annotations

from tests.conformance.baseline import WIRE, Expected, expected, judged
from tests.conformance.suite import Check

GOOD, BAD, ODD = Check("one", "a", "SUCCESS", ""), Check("one", "b", "FAILURE", "why"), Check("two", "c", "WARNING", "")


def lines(*names: str) -> list[Expected]:
    return [Expected(leg="server", because="suite", reason="it is the suite that is wrong", lines=names)]


def test_failures_and_warnings_must_be_named_by_scenario_or_check() -> None:
    checks = [GOOD, BAD, ODD]
    assert judged(checks, []) == ["FAILURE one:b why", "WARNING two:c "]
    assert judged(checks, lines("one", "two:c")) == []
    assert judged(checks, lines("one:a", "two")) == ["in the baseline, and nothing fails: one:a", "FAILURE one:b why"]


def test_a_line_that_nothing_needs_fails_where_the_suite_runs_what_it_names() -> None:
    assert judged([GOOD], lines("one", "three", "one:later")) == ["in the baseline, and nothing fails: one"]
    assert judged([BAD], lines("one", "one")) == ["twice in the baseline: one"]


def test_no_scenario_excuses_what_is_sent_in_the_wrong_shape() -> None:
    wrong = Check("one", WIRE, "FAILURE", "not the schema")
    assert judged([wrong], lines("one")) == [
        "in the baseline, and nothing fails: one",
        f"FAILURE one:{WIRE} not the schema",
    ]


def test_every_part_of_the_baseline_can_be_read() -> None:
    assert expected("server")
    assert expected("client")
