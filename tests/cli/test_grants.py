"""Grants on the command line: one question for several calls, by a rule that can be seen and taken back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

pytestmark = pytest.mark.requirement("I35-grants")

GRANTED = (
    "providers: {hello: {enabled: true, tools: {hello: {policy: ask, grants: {most: 8h, scope: caller}}}}}\n"
    "store: sqlite:///./state.db\n"
)
SHORT_NAMES = json.dumps({"properties": {"name": {"maxLength": 3}}})


@pytest.fixture
def asking(write: Callable[..., Path]) -> None:
    """A configuration in which each call waits for a person, who may allow several."""
    write(GRANTED)


def ask(run: Run) -> Any:
    run("call", "hello", "name=Ada")
    return run("approvals", "list", "--json").json["approvals"][0]


def test_like_calls_run_until_the_rule_is_taken_back(asking: None, run: Run) -> None:
    ticket = ask(run)
    done = run("approvals", "approve", ticket["id"], "--for", "1h", "--where", SHORT_NAMES, "--reason", "short names")
    assert (done.code, "like calls are allowed by grant " in done.out) == (0, True), done.err
    assert run("call", "hello", "name=Ada").out == "Hello, Ada!\n"
    assert run("call", "hello", "name=Bob").out == "Hello, Bob!\n"
    assert run("call", "hello", "name=Charlie").code != 0
    (grant,) = run("grants", "list", "--json").json["grants"]
    assert (grant["tool"], grant["scope"], grant["arguments"]) == ("hello", "caller", json.loads(SHORT_NAMES))
    shown = run("grants").out.splitlines()
    assert [line.split()[0] for line in shown] == ["GRANT", grant["id"]]
    assert run("grants", "list", "--tool", "other").out == "there are no grants\n"
    assert run("grants", "revoke", grant["id"]).out == f"grant {grant['id']} is revoked\n"
    assert run("call", "hello", "name=Bob").code != 0
    again = run("grants", "revoke", grant["id"])
    assert (again.code, "it was revoked or has expired" in again.err) == (1, True)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--where", "true"], 2, "--for says for how long"),
        (["--for", "soon"], 2, "--for 'soon'"),
        (["--for", "1h", "--where", "{"], 2, "--where is not JSON"),
        (["--for", "1h", "--where", "[]"], 2, "--where is a JSON Schema"),
        (["--for", "9h"], 1, "grants of at most 8h"),
        (["--for", "1h", "--where", "true"], 1, "grants.any: true"),
        (["--for", "1h", "--session"], 1, "the call has no session"),
        (["--for", "1h", "--where", '{"properties":{"name":{"maxlength":3}}}'], 1, "nearest: 'maxLength'"),
        (["--for", "1h", "--calls", "0"], 1, "calls is 1 to"),
        (["--reason", "x" * 2_001], 1, "more than 2,000 characters"),
    ],
)
def test_what_cannot_be_allowed_is_refused_and_the_call_waits_on(
    asking: None, run: Run, options: list[str], code: int, says: str
) -> None:
    ticket = ask(run)
    done = run("approvals", "approve", ticket["id"], *options)
    assert (done.code, says in " ".join(done.err.split())) == (code, True), done.err
    assert run("approvals", "list", "--json").json["approvals"][0]["state"] == ticket["state"]
