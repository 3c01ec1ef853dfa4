"""`toolplug check`, and how every command refuses a wrong configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.process import toolplug

WRONG = """\
providers:
  hello:
    enabled: true
    greting: Hi
    limits: {timeout: soon}
  nosuch:
    enabled: false
auth: {}
limts: {}
"""


@pytest.mark.process
@pytest.mark.requirement("C-10-check", "C-2-all-problems", "H-configuration-all-at-once", "C-10-exit-codes")
def test_every_problem_of_a_file_is_reported_at_once_and_the_exit_code_is_1(tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text(WRONG)
    done = toolplug("check", folder=tmp_path)
    places = [line.split(": ")[0] for line in done.out.splitlines()]
    assert done.code == 1
    assert places == [
        "providers.yaml:4:5",
        "providers.yaml:5:23",
        "providers.yaml:6:3",
        "providers.yaml:8:7",
        "providers.yaml:9:1",
    ]
    assert "nearest: 'greeting'" in done.out
    assert done.err == ""


@pytest.mark.requirement("C-10-json-problems")
def test_problems_as_json_have_their_seven_fields_on_stdout(tmp_path: Path, run: Run) -> None:
    (tmp_path / "providers.yaml").write_text(WRONG)
    done = run("check", "--json")
    assert (done.code, done.err) == (1, "")
    assert done.json["problems"][0] == {
        "file": "providers.yaml",
        "line": 4,
        "column": 5,
        "path": "providers.hello.greting",
        "code": "unknown_key",
        "message": "unknown key 'greting'",
        "hint": "nearest: 'greeting'",
    }


@pytest.mark.requirement("C-10-json-problems", "C-10-exit-codes", "C-10-stderr")
@pytest.mark.parametrize("command", [("call", "hello"), ("tools",), ("diff", "providers.yaml"), ("serve",)])
def test_every_command_refuses_a_wrong_file_with_exit_1_and_without_a_traceback(
    tmp_path: Path, run: Run, command: tuple[str, ...]
) -> None:
    (tmp_path / "providers.yaml").write_text(WRONG)
    plain = run(*command)
    assert (plain.code, plain.out, len(plain.err.splitlines())) == (1, "", 5)
    assert len(run(*command, "--json").json["problems"]) == 5


@pytest.mark.requirement(
    "H-configuration-not-utf-8",
    "H-configuration-tabs",
    "H-configuration-duplicate-keys",
    "H-configuration-bombs",
    "H-configuration-deep",
    "H-configuration-tags",
    "H-configuration-several-documents",
    "H-configuration-enabled-text",
    "H-configuration-missing-environment",
)
@pytest.mark.parametrize(
    "text",
    [
        b"providers: \xff",
        b"providers:\n\thello: {}\n",
        b"providers: {}\nproviders: {}\n",
        b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
        b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
        b"f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
        b"providers: " + b"[" * 5000,
        b"providers: !!python/object/apply:os.system [true]\n",
        b"providers: {}\n---\nproviders: {}\n",
        b'providers: {hello: {enabled: "false"}}\n',
        b"providers: {hello: {enabled: true, greeting: '${TOOLPLUG_TEST_NOT_SET}'}}\n",
        b"- a list\n",
    ],
    ids=["not-utf-8", "tabs", "twice", "bomb", "deep", "tag", "documents", "text", "environment", "list"],
)
def test_a_hostile_file_is_a_problem_with_its_place(tmp_path: Path, run: Run, text: bytes) -> None:
    (tmp_path / "providers.yaml").write_bytes(text)
    done = run("check", "--json")
    assert done.code == 1
    assert done.json["problems"]
    assert all(problem["file"] == "providers.yaml" and problem["message"] for problem in done.json["problems"])
    assert any(problem["line"] for problem in done.json["problems"])


def test_a_right_file_says_what_is_on(run: Run, write: Callable[..., Path]) -> None:
    write("providers: {hello: {enabled: true}, file_search: {}}")
    assert run("check") == (0, "providers.yaml is right: 1 provider on, 1 off\n", "")
    assert run("check", "--json").json == {"problems": []}


@pytest.mark.requirement("C-10-config")
def test_the_file_is_the_one_named_else_the_one_here_else_that_of_the_environment(
    run: Run, write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = run("check", "--json")
    assert (none.code, none.codes) == (1, ["no_configuration"])
    elsewhere = write("providers: {}", "elsewhere.yaml")
    monkeypatch.setenv("TOOLPLUG_CONFIG", str(elsewhere))
    assert str(elsewhere) in run("check").out
    write("providers: {}")
    assert run("check").out.startswith("providers.yaml is right")
    named = write("providers: {}", "named.yaml")
    for option in ("-c", "--config"):
        assert str(named) in run("check", option, str(named)).out
    missing = run("check", "-c", "missing.yaml", "--json")
    assert (missing.code, missing.codes) == (1, ["unreadable"])
