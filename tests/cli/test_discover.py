"""`toolplug discover`: MCP servers are started, listed, and gone again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.done import Done
from tests.host.plain_server import PlainServer
from tests.http.mcp_sources import DEAD_SERVER
from tests.mcp.client import hostile

Write = Callable[..., Path]
Package = Callable[..., None]

LOUD = """
from pathlib import Path
from toolplug import FunctionProvider

class Loud(FunctionProvider):
    async def start(self, site):
        Path("started").touch()
"""

pytestmark = [pytest.mark.requirement("C-10-discover"), pytest.mark.process]


def config(servers: object, *, store: str = "sqlite:///./state.db", **sections: object) -> str:
    """A configuration whose sections are JSON, which is YAML too."""
    whole = {"mcp_servers": servers, "store": store, **sections}
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in whole.items())


@pytest.fixture
def web(tmp_path: Path) -> PlainServer:
    return PlainServer(tmp_path / "web", "fetch", "echo")


def held(done: Done) -> list[bool]:
    (view,) = done.json["servers"]
    return [tool["quarantined"] for tool in view["tools"]]


def rows(text: str) -> list[list[str]]:
    return [line.split(maxsplit=4) for line in text.splitlines()]


@pytest.mark.requirement("DISC-on-demand", "DISC-start-one-fails", "DISC-failure-recorded", "DISC-temporary")
def test_every_enabled_server_is_listed_and_one_that_fails_costs_the_others_nothing(
    run: Run, write: Write, web: PlainServer
) -> None:
    off = {"command": "no-such-program", "enabled": False}
    write(config({"web": web.entry, "dead": {"url": DEAD_SERVER}, "off": off}))
    done = run("discover")
    assert done.code == 1
    header, *told = rows(done.out)
    assert header == ["SERVER", "STATUS", "TOOLS", "REMOVED", "ERROR"]
    assert told[0] == ["web", "success", "2", "0"]
    assert told[1][:4] == ["dead", "failed", "0", "0"]
    assert told[1][4]
    one = run("discover", "web", "--json")
    assert one.code == 0
    (view,) = one.json["servers"]
    assert [tool["name"] for tool in view["tools"]] == ["fetch", "echo"]
    assert (view["source"], view["transport"]["command"], one.json["problems"]) == ("file", sys.executable, [])
    assert not web.runs()


def test_a_list_that_a_server_refuses_is_said_and_not_counted_as_removed(run: Run, write: Write) -> None:
    script = Path(hostile.__file__)
    odd = {"command": sys.executable, "args": [script.name, "offers refused"], "cwd": str(script.parent)}
    write(config({"odd": odd}))
    done = run("discover")
    assert rows(done.out)[1] == ["odd", "success", "2", "0"]
    assert "odd: resources are not listed: no such method" in done.out.splitlines()


@pytest.mark.requirement("C-8-record", "C-8-last-good")
def test_what_was_found_is_kept_for_the_next_command_also_when_the_server_fails_then(
    run: Run, write: Write, web: PlainServer
) -> None:
    file = write(config({"web": web.entry}))
    before = file.read_bytes()
    assert run("discover").code == 0
    (web.folder / "server.py").write_text("raise SystemExit(3)")
    failed = run("discover", "web", "--json")
    (view,) = failed.json["servers"]
    assert (failed.code, view["status"], view["stale"]) == (1, "failed", True)
    assert [tool["name"] for tool in view["tools"]] == ["fetch", "echo"]
    assert rows(run("discover").out)[1][2:4] == ["2", "stale"]
    assert file.read_bytes() == before


@pytest.mark.requirement("C-8-pin")
def test_changed_tools_of_a_pinned_server_are_told_and_accepted(run: Run, write: Write, web: PlainServer) -> None:
    write(config({"web": {**web.entry, "pin": True}}))
    assert run("discover").code == 0
    web.lists("fetch", "echo", description="Does it, and tells me.")
    assert run("discover").out.splitlines()[-2:] == [
        "web: changed, and held back until accepted: fetch, echo",
        "  toolplug discover web --accept '*'",
    ]
    wrong = run("discover", "web", "--accept", "other", "--json")
    assert (wrong.code, wrong.codes) == (1, ["tool_not_quarantined"])
    one = run("discover", "web", "--accept", "fetch", "--json")
    assert (one.code, held(one)) == (0, [False, True])
    assert held(run("discover", "web", "--accept", "*", "--json")) == [False, False]


def test_a_server_that_is_not_there_or_is_off_is_refused(run: Run, write: Write) -> None:
    write(config({"time": {"command": "no-such-program", "enabled": False}}))
    unknown = run("discover", "tme", "--json")
    assert (unknown.code, unknown.codes) == (1, ["server_not_found"])
    assert "nearest: 'time'" in unknown.json["problems"][0]["message"]
    off = run("discover", "time", "--json")
    assert (off.code, off.codes) == (1, ["server_disabled"])
    assert run("discover").out == (
        "providers.yaml has no MCP server that is enabled; toolplug discover --import FILE adds some\n"
    )


@pytest.mark.requirement("C-2-bad-server-tolerated")
def test_a_wrong_entry_is_told_and_the_others_are_listed(run: Run, write: Write, web: PlainServer) -> None:
    write(config({"web": web.entry, "odd": {"comand": "x"}}))
    done = run("discover", "--json")
    assert (done.code, [view["id"] for view in done.json["servers"]]) == (1, ["web"])
    assert {problem["path"].split(".")[1] for problem in done.json["problems"]} == {"odd"}


def test_no_provider_is_started(run: Run, write: Write, tmp_path: Path, package: Package, web: PlainServer) -> None:
    package("toolplug-loud", {"loud": "loud_mod:Loud"}, loud_mod=LOUD)
    write(config({"web": web.entry}, providers={"loud": {"enabled": True}}))
    assert run("discover").code == 0
    assert not (tmp_path / "started").exists()


def test_servers_are_imported_and_the_named_one_is_listed(
    run: Run, write: Write, tmp_path: Path, web: PlainServer
) -> None:
    file = write("providers: {}\nstore: memory://")
    named = {"mcpServers": {"web": web.entry, "other": {"command": "no-such"}}}
    (tmp_path / "mcp.json").write_text(json.dumps(named))
    done = run("discover", "web", "--import", "mcp.json", "--json")
    assert done.code == 0
    assert (done.json["imported"]["written"], [view["id"] for view in done.json["servers"]]) == (True, ["web"])
    assert "no-such" in file.read_text()


@pytest.mark.requirement("I32-call-discovers")
@pytest.mark.parametrize("store", ["memory://", "sqlite:///./state.db"])
def test_a_call_of_a_server_whose_tools_are_not_known_yet_lists_them_first(
    run: Run, write: Write, web: PlainServer, store: str
) -> None:
    other = {"command": "no-such-program", "prefix": "other"}
    write(config({"web": {**web.entry, "prefix": "kit"}, "other": other}, store=store))
    listed = "MCP server web: its tools are not known yet, and are listed now"
    for name in ("kit.echo", "kit__echo"):
        done = run("call", name, "text=a")
        assert (done.code, listed in done.err) == (0, store == "memory://" or name == "kit.echo"), done.err
        assert "other" not in done.err
    failed = run("call", "other.echo")
    assert (failed.code, failed.out) == (1, 'no builtin provider handles tool "other.echo"\n')
    assert "MCP server other: its tools are not known yet" in failed.err
    assert "no-such-program" in failed.err
    assert "toolplug discover other tries it again" in failed.err
    assert not web.runs()


@pytest.mark.requirement("I32-call-discovers")
def test_a_call_of_an_agents_server_lists_it_first_too(run: Run, write: Write, web: PlainServer) -> None:
    mine = {"mine": {"prefix": "kit", "from": "mcp:web"}}
    write(config({"web": web.entry}, toolsets=mine, agents={"ada": {"toolsets": ["mine"]}}))
    done = run("call", "kit.echo", "text=a", "--agent", "ada")
    assert done.code == 0, done.err
