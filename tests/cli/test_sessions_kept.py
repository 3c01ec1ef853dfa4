"""`toolplug sessions list` and `show`: what the store has, without a running host."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.lending import READ, WRITE, lent

from toolplug.parts.sessions.tools.negotiation import ToolChanges

Write = Callable[..., Path]

FILE = "providers: {}\nstore: sqlite:///./state.db\n"


@pytest.fixture
def config(write: Write) -> Path:
    return write(FILE)


@pytest.mark.requirement("C-10-sessions", "C-10-operator", "DYN-UX-debug")
def test_the_live_sessions_of_a_tenant_are_listed_and_nobody_elses(run: Run, config: Path) -> None:
    first = lent(config)
    lent(config, tenant="t2")
    lent(config, end=True)
    second = lent(config, changes=[ToolChanges(added=[READ])])
    done = run("sessions", "list")
    assert (done.code, done.err) == (0, "")
    assert [line.split() for line in done.out.splitlines()] == [
        ["CODE", "PLUGIN", "TYPE", "REVISION", "TOOLS", "REGISTERED", "EXPIRES", "IN"],
        [first, "diary", "1", "1", "yes", "1", "h"],
        [second, "diary", "2", "2", "yes", "1", "h"],
    ]
    (older, newer) = run("sessions", "list", "--json").json["sessions"]
    expires_at = datetime.fromisoformat(older.pop("expiresAt"))
    assert timedelta(0) < expires_at - datetime.now(UTC) <= timedelta(hours=1.1)
    assert older == {
        "code": first,
        "pluginType": "diary",
        "capabilities": [
            {"type": "storage", "level": "advanced", "resources": ["disk"]},
            {"type": "messaging", "level": "basic", "resources": []},
        ],
        "registered": True,
        "toolCount": 1,
        "revision": 1,
    }
    assert newer["code"] == second
    assert len(run("sessions", "list", "--tenant", "t2", "--json").json["sessions"]) == 1


@pytest.mark.requirement("C-10-sessions")
def test_a_tenant_without_sessions_is_told_how_one_is_made(run: Run, config: Path) -> None:
    done = run("sessions", "list", "--tenant", "t7")
    assert (done.code, done.out) == (
        *(0, "tenant 't7' has no sessions (--tenant names another); POST /api/sessions makes one\n"),
    )
    assert run("sessions", "list", "--json").json == {"sessions": []}


@pytest.mark.requirement("C-10-sessions", "I3-6-cli")
def test_everything_of_a_session_is_shown_but_its_token(run: Run, config: Path) -> None:
    code = lent(config)
    done = run("sessions", "show", code)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:2] == ["plugin type   diary", "plugin        nothing in the log"]
    assert lines[2].startswith("revision      1, of 20")
    assert lines[3:] == [
        "expires in    1 h",
        "capabilities  storage (advanced), messaging (basic)",
        'environment   {"version": "1[2J"}',
        "",
        "TOOL   REQUIRES                    DESCRIPTION",
        "write  storage, messaging (basic)  Write an entry. No more.",
    ]
    shown = run("sessions", "show", code, "--json").json
    times = [datetime.fromisoformat(shown.pop(key)) for key in ("lastUpdated", "expiresAt")]
    assert times == sorted(times)
    assert shown == {
        "sessionId": code,
        "pluginType": "diary",
        "lastPluginStatus": None,
        "capabilities": [
            {"type": "storage", "level": "advanced", "resources": ["disk"]},
            {"type": "messaging", "level": "basic", "resources": []},
        ],
        "tools": [WRITE],
        "environment": {"version": "1[2J"},
        "toolCount": 1,
        "revision": 1,
        "registered": True,
    }


@pytest.mark.requirement("C-10-sessions")
def test_a_session_that_lends_nothing_now_says_so(run: Run, config: Path) -> None:
    code = lent(config, changes=[ToolChanges(removed=["write"])])
    assert run("sessions", "show", code).out.endswith("\nit lends no tools now\n")


@pytest.mark.requirement("C-10-sessions", "C-10-exit-codes", "C-10-json")
def test_a_session_that_cannot_be_shown_is_refused_with_what_to_do(run: Run, config: Path) -> None:
    listing = "toolplug sessions list shows the codes of a tenant"
    foreign, ended = lent(config, tenant="t2"), lent(config, end=True)
    for verb in ("show", "tail"):
        assert run("sessions", verb, "abc") == (
            *(1, "", f"abc: a session code is 8 of the characters A-Z and 2-7 ({listing})\n"),
        )
        for code in ("ABCDEFGH", foreign):
            assert run("sessions", verb, code) == (1, "", f"{code}: tenant 'default' has no such session ({listing})\n")
            assert run("sessions", verb, code, "--json").codes == ["session_not_found"]
    gone = "the session was ended; create a new one with POST /api/sessions"
    assert run("sessions", "show", ended) == (1, "", f"{ended}: {gone}\n")
    assert run("sessions", "show", ended, "--json").codes == ["session_ended"]


@pytest.mark.requirement("C-10-sessions")
@pytest.mark.parametrize("line", [["list"], ["show", "ABCDEFGH"], ["tail", "ABCDEFGH"]])
def test_sessions_in_the_memory_of_their_host_are_refused_with_where_to_ask(
    run: Run, write: Write, line: list[str]
) -> None:
    write("providers: {}\nstore: memory://")
    (problem,) = run("sessions", *line, "--json").json["problems"]
    assert (problem["code"], problem["file"], problem["path"]) == ("store_in_memory", "providers.yaml", "store")
    assert "GET /api/sessions" in problem["hint"]
    assert "sqlite:///" in problem["hint"]


@pytest.mark.requirement("C-10-sessions", "C-10-exit-codes")
def test_a_wrong_configuration_is_refused_with_its_place(run: Run, write: Write) -> None:
    write("providers: {}\nsessions: {tll: 1h}\nstore: sqlite:///./state.db")
    assert run("sessions", "list") == (
        *(1, "", "providers.yaml:2:12: sessions.tll: unknown key 'tll' (nearest: 'ttl')\n"),
    )


@pytest.mark.requirement("C-10-sessions", "C-10-exit-codes")
def test_a_wrong_provider_entry_is_refused_like_any_wrong_configuration(run: Run, write: Write) -> None:
    write("providers: {no_such_thing: {enabled: true}}\nstore: sqlite:///./state.db")
    done = run("sessions", "list", "--json")
    assert (done.code, done.codes) == (1, ["unknown_provider"])
