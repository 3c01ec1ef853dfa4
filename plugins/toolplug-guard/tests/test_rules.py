"""Rules that refuse calls: by tool, by argument, by pattern; what cannot be checked does not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from toolplug.errors import ConfigError
from toolplug_guard.rules import CompiledRule, broken_rule
from toolplug_guard.settings import Rule

Serve = Callable[..., AbstractAsyncContextManager[Any]]


def refusal(rules: list[CompiledRule], arguments: object) -> str | None:
    """The reason of the rule that a call breaks."""
    found = broken_rule(rules, arguments)
    return None if found is None else found.reason


def rule(**settings: object) -> CompiledRule:
    return CompiledRule.of(Rule.model_validate({"tool": "*", "reason": "no", **settings}))


class Path(BaseModel):
    """What a tool's own types make of its arguments."""

    path: str


CALLS = [
    ({}, {}, True),
    ({"pattern": "secret"}, {"a": {"b": ["x", "a secret"]}}, True),
    ({"pattern": "secret"}, {"secret": 1}, True),
    ({"pattern": "secret"}, {"a": "Secret"}, False),
    ({"pattern": "(?i)secret"}, {"a": "Secret"}, True),
    ({"pattern": "^5$"}, {"a": 5}, True),
    ({"pattern": "^(true|null)$"}, {"a": [None]}, True),
    ({"argument": "path", "pattern": "^/etc"}, {"path": "/etc/passwd"}, True),
    ({"argument": "path", "pattern": "^/etc"}, {"file": "/etc/passwd"}, False),
    ({"argument": "/a/1/b~1c", "pattern": "x"}, {"a": ["x", {"b/c": "x"}]}, True),
    ({"argument": "/a/1/b~1c", "pattern": "x"}, {"a": ["x", {"b": "x"}]}, False),
    ({"argument": "/a/7", "pattern": "x"}, {"a": ["x"]}, False),
    ({"argument": "at", "pattern": "^/etc"}, {"at": Path(path="/etc/passwd")}, True),
    ({"pattern": "no"}, {}, False),
]


@pytest.mark.requirement("I2-8-guard-rules")
@pytest.mark.parametrize(("settings", "arguments", "refused"), CALLS)
def test_a_rule_looks_at_every_text_of_the_argument(
    settings: Mapping[str, str], arguments: Mapping[str, object], refused: bool
) -> None:
    assert refusal([rule(**settings)], arguments) == ("no" if refused else None)


@pytest.mark.parametrize("arguments", [{"a": "\ud800"}, {"a": {1: 2}, "b": object()}, "no object", None])
def test_what_cannot_be_checked_is_an_error(arguments: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        refusal([rule(pattern="x")], arguments)


def test_the_first_rule_that_a_call_breaks_gives_the_reason() -> None:
    rules = [rule(pattern=pattern, reason=pattern) for pattern in ("b", "a")]
    assert refusal(rules, {"x": "ab"}) == "b"


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|a)*$", r"^([a-z]*)*$", r"(.*a){25}$"])
def test_a_pattern_that_makes_others_hang_takes_time_linear_in_the_text(pattern: str) -> None:
    assert refusal([rule(pattern=pattern, argument="text")], {"text": "b" + "a" * 100_000 + "!"}) is None


@pytest.mark.judge
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")), st.lists))
def test_a_text_anywhere_in_the_arguments_is_found(value: object) -> None:
    assert refusal([rule(pattern="needle")], {"a": [value, {"b": "a needle"}]}) == "no"


@pytest.mark.anyio
@pytest.mark.requirement("I2-8-guard-rules", "C-12-before-call")
async def test_a_refused_call_is_denied_with_the_reason_and_never_reaches_its_tool(serve: Serve) -> None:
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
        assert served.host.metrics.get_sample_value("guard_refused_total") == 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"tool": "x", "pattern": "(?=a)", "reason": "no"}, "is not a pattern of RE2"),
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
    assert problem.path.startswith("providers.guard.rules[0]") or problem.path.startswith("providers.guard.rules.0")


@pytest.mark.anyio
@pytest.mark.requirement("I35-watch")
async def test_a_watched_rule_lets_every_call_pass_and_says_what_it_would_have_done(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toolplug.audit")
    watched = {"tool": "hello", "pattern": "(?i)mallory", "reason": "we do not greet them", "watch": True}
    never = {"tool": "hello", "pattern": "eve", "reason": "never"}
    async with serve(rules=[watched, never]) as host:
        caller = host
        assert (await caller.call("hello", name="Mallory")).output == "Hello, Mallory!"
        assert (await caller.call("hello", name="Mallory and eve")).status == "denied"
        assert (await caller.call("hello", name="Ada")).status == "success"
        shown = (await host.client.get("/metrics")).text
    (line,) = [record.getMessage() for record in caplog.records if '"would":"denied"' in record.getMessage()]
    assert '"rule":"plugin: guard","reason":"we do not greet them"' in line
    assert 'watched_total{provider="hello",rule="plugin: guard",tool_name="hello"} 1.0' in shown


@pytest.mark.requirement("I35-watch")
def test_what_cannot_be_checked_breaks_a_watched_rule_and_refuses_nothing() -> None:
    found = broken_rule([rule(pattern="x", watch=True)], object())
    assert found is not None
    assert found.watch
