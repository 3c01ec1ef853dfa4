"""Rules that veto: by tool, by argument, by pattern; what cannot be checked does not run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from toolplug.errors import ConfigError
from toolplug_journal.guard import UNCHECKED, Guard
from toolplug_journal.linear_pattern import LinearPattern
from toolplug_journal.settings import Rule

Serve = Callable[..., AbstractAsyncContextManager[Any]]
LOG = logging.getLogger("toolplug.providers.journal")


def guard(**rule: str) -> Guard:
    return Guard([Rule.model_validate({"reason": "no", **rule})], LOG)


class Path(BaseModel):
    """What a tool's own types make of its arguments."""

    path: str


CALLS = [
    ({"tool": "rm"}, "rm", {}, True),
    ({"tool": "rm"}, "rmdir", {}, False),
    ({"tool": "rm*"}, "rmdir", {}, True),
    ({"tool": "rm"}, "RM", {}, False),
    ({"tool": "*", "pattern": "secret"}, "any", {"a": {"b": ["x", "a secret"]}}, True),
    ({"tool": "*", "pattern": "secret"}, "any", {"secret": 1}, True),
    ({"tool": "*", "pattern": "secret"}, "any", {"a": "Secret"}, False),
    ({"tool": "*", "pattern": "(?i)secret"}, "any", {"a": "Secret"}, True),
    ({"tool": "*", "pattern": "^5$"}, "any", {"a": 5}, True),
    ({"tool": "*", "pattern": "^(true|null)$"}, "any", {"a": [None]}, True),
    ({"tool": "*", "argument": "path", "pattern": "^/etc"}, "any", {"path": "/etc/passwd"}, True),
    ({"tool": "*", "argument": "path", "pattern": "^/etc"}, "any", {"file": "/etc/passwd"}, False),
    ({"tool": "*", "argument": "/a/1/b~1c", "pattern": "x"}, "any", {"a": ["x", {"b/c": "x"}]}, True),
    ({"tool": "*", "argument": "/a/1/b~1c", "pattern": "x"}, "any", {"a": ["x", {"b": "x"}]}, False),
    ({"tool": "*", "argument": "/a/7", "pattern": "x"}, "any", {"a": ["x"]}, False),
    ({"tool": "*", "argument": "at", "pattern": "^/etc"}, "any", {"at": Path(path="/etc/passwd")}, True),
    ({"tool": "*", "pattern": "no"}, "any", {}, False),
]


@pytest.mark.requirement("I2-8-journal-guard")
@pytest.mark.parametrize(("rule", "tool", "arguments", "vetoed"), CALLS)
def test_a_rule_looks_at_the_tool_and_at_every_text_of_the_argument(
    rule: Mapping[str, str], tool: str, arguments: Mapping[str, object], vetoed: bool
) -> None:
    assert guard(**rule).refusal(tool, arguments) == ("no" if vetoed else None)


@pytest.mark.requirement("I2-8-journal-guard")
@pytest.mark.parametrize("arguments", [{"a": "\ud800"}, {"a": {1: 2}, "b": object()}, "no object", None])
def test_what_cannot_be_checked_is_vetoed(arguments: object) -> None:
    assert guard(tool="*", pattern="x").refusal("any", arguments) == UNCHECKED
    assert guard(tool="other", pattern="x").refusal("any", arguments) is None


def test_the_first_rule_that_a_call_breaks_gives_the_reason() -> None:
    rules = [Rule(tool="*", pattern=pattern, reason=pattern) for pattern in ("b", "a")]
    assert Guard(rules, LOG).refusal("any", {"x": "ab"}) == "b"


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|a)*$", r"^([a-z]*)*$", r"(.*a){25}$"])
def test_a_pattern_that_makes_others_hang_takes_time_linear_in_the_text(pattern: str) -> None:
    assert not LinearPattern(pattern).found_in("b" + "a" * 100_000 + "!")


@pytest.mark.parametrize("pattern", [r"(?=a)", r"(a)\1", "(open", "a{1000}{1000}{1000}"])
def test_a_pattern_that_needs_backtracking_or_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is no pattern of linear time: "):
        LinearPattern(pattern)


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_a_text_anywhere_in_the_arguments_is_found(value: object) -> None:
    assert guard(tool="*", pattern="needle").refusal("any", {"a": [value, {"b": "a needle"}]}) == "no"


@pytest.mark.anyio
@pytest.mark.requirement("I2-8-journal-guard", "C-12-before-call")
async def test_a_vetoed_call_is_denied_with_the_reason_and_never_reaches_its_tool(serve: Serve) -> None:
    rules = [{"tool": "hel*", "argument": "name", "pattern": "(?i)^mallory$", "reason": "we do not greet them"}]
    async with serve(rules=rules) as served:
        for name in ("Mallory", "Ann"):
            await served.call("hello", name=name)
        body = {"name": "hello", "arguments": {"name": "mallory"}}
        refused = (await served.client.post("/v1/tool-calls", json=body)).json()
        assert (refused["status"], refused["output"]) == (
            "denied",
            'tool "hello" is not allowed: hook: we do not greet them',
        )
        assert served.host.metrics.get_sample_value("hello_greetings_total") == 1
        assert served.host.metrics.get_sample_value("journal_vetoes_total") == 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"tool": "x", "pattern": "(?=a)", "reason": "no"}, "is no pattern of linear time"),
        ({"tool": "x", "argument": "a", "reason": "no"}, "argument needs a pattern"),
        ({"tool": "x"}, "reason"),
        ({"tool": "x", "reason": "no", "patern": "a"}, "patern"),
    ],
)
async def test_a_wrong_rule_stops_the_start_and_says_where(serve: Serve, rule: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        async with serve(rules=[rule]):
            raise AssertionError("it must not start")
    (problem,) = caught.value.problems
    assert problem.path.startswith("providers.journal.rules[0]") or problem.path.startswith("providers.journal.rules.0")
