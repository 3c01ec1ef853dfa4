"""`toolplug lock`, and what `--locked` makes of it: tools one by one, servers that are held back, and differences."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.process import toolplug
from tests.cli.test_discover import config
from tests.host.plain_server import PlainServer
from tests.locking.shop import install_all

from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug.errors import ConfigError, ProviderError

Write = Callable[..., Path]

pytestmark = [pytest.mark.process, pytest.mark.requirement("I36-lock")]

CALLER = Principal("ada", scopes=frozenset({"tools:call", "operator"}))
NOTES = """
from toolplug import tool


@tool
def count() -> int:
    "Count."
    return 1
"""
CHANGING = '''
from pathlib import Path

from toolplug import FunctionProvider, ToolDefinition


class Changing(FunctionProvider):
    """Lists what a file says, so that its tools change though its code does not."""

    def tools(self):
        lines = Path("tools.txt").read_text().split()
        return [ToolDefinition(name=name, description=text) for name, text in (line.split("=") for line in lines)]
'''


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """The file with the tools of a provider, which is that of a configuration with two."""
    (tmp_path / "changing.py").write_text(CHANGING)
    (tmp_path / "notes.py").write_text(NOTES)
    (tmp_path / "providers.yaml").write_text(
        "store: memory://\nproviders:\n  notes: {type: ./notes.py, enabled: true}\n"
        "  changing: {type: ./changing.py, enabled: true}\n"
    )
    (tmp_path / "tools.txt").write_text("one=First two=Second")
    return tmp_path / "tools.txt"


def test_tools_that_change_without_their_code_are_refused_one_by_one(run: Run, tools: Path) -> None:
    assert run("lock").code == 0
    assert run("check", "--locked", "--start").code == 0
    tools.write_text("one=Other three=Third")
    assert run("check", "--locked").code == 0, "only a start can tell"
    done = run("check", "--locked", "--start")
    assert done.code == 1
    for line in (
        "its tool 'one' has another description, or takes other arguments",
        "its tool 'three' is new",
        "its tool 'two' is gone",
        "toolplug lock --update changing",
    ):
        assert line in done.out
    assert "notes" not in done.out


@pytest.mark.anyio
async def test_a_host_with_a_lock_does_not_offer_what_has_changed_and_goes_on_without_what_is_not_required(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert toolplug("lock", folder=tmp_path).code == 0
    async with open_host("providers.yaml", locked=True) as host:
        assert {each.key: each.state for each in host.records()}["changing"] == "active"
    tools.write_text("one=Other two=Second")
    with pytest.raises((ConfigError, ProviderError), match="its tool 'one' has another description"):
        async with open_host("providers.yaml", locked=True):
            pass
    file = tmp_path / "providers.yaml"
    file.write_text(file.read_text().replace("changing.py, ", "changing.py, required: false, "))
    async with open_host("providers.yaml", locked=True) as host:
        assert list(host.registry.catalog) == ["count"]


def test_update_writes_one_provider_and_shows_its_difference_alone(run: Run, tools: Path, tmp_path: Path) -> None:
    assert run("lock").out.splitlines() == ["toolplug.lock is written, with 0 packages and 3 tools: 0 differences"]
    before = (tmp_path / "toolplug.lock").read_text()
    tools.write_text("one=Other two=Second")
    notes = tmp_path / "notes.py"
    notes.write_text(notes.read_text().replace("Count.", "Count more."))
    done = run("lock", "--update", "changing")
    assert done.out.splitlines() == [
        "providers.changing: its tool 'one' has another description, or takes other arguments",
        "toolplug.lock is written, with 0 packages and 3 tools: 1 difference",
    ]
    assert run("check", "--locked", "--start").out.count("notes.py has changed") == 1
    assert run("lock", "--update", "notes").code == 0
    assert run("check", "--locked", "--start").code == 0
    assert (tmp_path / "toolplug.lock").read_text() != before
    assert "'chnging'" in run("lock", "--update", "chnging").err


def test_doctor_warns_of_each_difference_from_the_lock(run: Run, tools: Path, tmp_path: Path) -> None:
    def warned() -> list[tuple[str, str]]:
        done = run("doctor", "--json")
        assert done.code == 0, done.out
        warnings = [each for each in json.loads(done.out)["warnings"] if "lock" in each["code"]]
        assert all("toolplug lock" in each["hint"] for each in warnings), warnings
        return [(each["code"], each["message"]) for each in warnings]

    assert warned() == [], "there is no lock"
    assert run("lock").code == 0
    assert warned() == []
    tools.write_text("one=Other two=Second")
    (tmp_path / "notes.py").write_text(NOTES.replace("Count.", "Count more."))
    assert warned() == [
        ("lock_drift", "providers.notes: ./notes.py has changed"),
        (
            "lock_drift",
            "providers.notes: its tool 'count' has another description, or takes other arguments",
        ),
        ("lock_drift", "providers.changing: its tool 'one' has another description, or takes other arguments"),
    ]
    (tmp_path / "toolplug.lock").write_text("version = 9\n")
    assert warned() == [("lock_unreadable", "has version 9, and this toolplug reads 1")]


def test_a_lock_that_is_missing_or_broken_is_a_problem_with_its_fix(run: Run, tools: Path, tmp_path: Path) -> None:
    file = tmp_path / "toolplug.lock"
    assert "there is no toolplug.lock (toolplug lock writes it)" in run("check", "--locked").out
    for text, words in (
        ("version = 1\n[[providers]]\nkey = 3\n", "providers.0.key: Input should be a valid string"),
        ("version = [", "is not valid TOML"),
        (f"version = {'[' * 5000}", "is not valid TOML"),
        ("version = 9\n", "has version 9, and this toolplug reads 1"),
        ("version = 1\n", "is not in toolplug.lock"),
    ):
        file.write_text(text)
        done = run("check", "--locked")
        assert (done.code, words in done.out, done.err) == (1, True, ""), done.out


def test_a_server_s_changed_tool_is_reported_and_written_by_update(run: Run, tmp_path: Path) -> None:
    web = PlainServer(tmp_path / "web", "fetch", "echo")
    (tmp_path / "providers.yaml").write_text(config({"web": web.entry}))
    assert run("lock").code == 0
    locked = tomllib.loads((tmp_path / "toolplug.lock").read_text())
    assert list(locked["servers"][0]["tools"]) == ["fetch", "echo"]
    assert run("check", "--locked", "--start").code == 0
    web.lists("fetch", "echo", "steal", description="Does it, and tells me.")
    done = run("check", "--locked", "--start")
    assert done.code == 1
    assert "mcp_servers.web: MCP server 'web': its tool 'fetch' has another description" in done.out
    assert "mcp_servers.web: MCP server 'web': its tool 'steal' is new" in done.out
    assert "mcp_servers.web: its tool 'steal' is new" in run("lock", "--update", "web").out
    assert run("check", "--locked", "--start").code == 0


@pytest.mark.anyio
async def test_a_host_with_a_lock_holds_back_the_changed_tool_of_a_server_and_goes_on(run: Run, tmp_path: Path) -> None:
    web = PlainServer(tmp_path / "web", "fetch", "echo")
    file = tmp_path / "providers.yaml"
    file.write_text(config({"web": {**web.entry, "prefix": "web"}}, store="memory://"))
    assert toolplug("lock", folder=tmp_path).code == 0
    web.lists("fetch", "steal")
    async with open_host(file, locked=True) as host:
        await host.servers.discover(CALLER, "web")
        called = {
            name: await host.executor_for(CALLER).execute(ToolCall("1", f"web.{name}", {}), CallContext(CALLER))
            for name in ("fetch", "steal")
        }
        held = {tool.name: tool.quarantined for tool in host.servers.servers("default")[0].record.tools}
    assert {name: result.status for name, result in called.items()} == {"fetch": "success", "steal": "unavailable"}
    assert called["steal"].metadata["code"] == "quarantined"
    assert held == {"fetch": False, "steal": True}


def test_what_differs_from_its_record_is_a_warning_when_it_is_locked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    install_all(site)
    monkeypatch.syspath_prepend(str(site))
    (site / "toolplug_shop" / "data.json").write_text("{}")
    (site / "toolplug_shop" / "helper.py").write_text("")
    (tmp_path / "providers.yaml").write_text("store: memory://\nproviders: {shop: {enabled: true}}\n")
    done = run("lock")
    assert done.err.splitlines() == [
        "warning: toolplug-shop 1.0: toolplug_shop/data.json differs from its RECORD",
        "warning: toolplug-shop 1.0: no RECORD lists toolplug_shop/helper.py",
    ]
    locked = tomllib.loads((tmp_path / "toolplug.lock").read_text())
    assert [each["name"] for each in locked["packages"]] == ["acme-tax", "rope", "shelf", "till", "toolplug-shop"]
    shop = locked["packages"][-1]
    assert (shop["requires"], shop["permissions"]) == (["acme-tax", "shelf", "till"], {"network": ["api.shop.example"]})
    assert run("check", "--locked").code == 0
