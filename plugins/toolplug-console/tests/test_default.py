"""Where the console runs without an entry, and how its page is opened."""

from __future__ import annotations

import asyncio
import re
import stat
import webbrowser
from collections.abc import Awaitable
from pathlib import Path

import pytest

from toolplug.cli.serving.listening import page_opener
from toolplug.host.file.configuration import ConfigFiles, read_configuration
from toolplug.packages.entry_points import find_installed

ROUTES = """
from toolplug import route

@route("GET", "/console", public=True)
async def mine(request):
    return {}
"""


async def wait_for(opening: Awaitable[object]) -> None:
    await opening


def runs(folder: Path, text: str, *defaults: str) -> list[str]:
    """The enabled entries of a configuration that is served with these defaults."""
    file = folder / "providers.yaml"
    file.write_text(f"store: memory://\n{text}", "utf-8")
    found = read_configuration(ConfigFiles(file, defaults={key: {} for key in defaults}), {}, find_installed())
    return [key for key, wanted in found.providers.wanted.items() if wanted.build is not None]


@pytest.mark.requirement("I33-console-there")
def test_a_console_that_no_entry_names_is_there_without_auth_and_only_where_it_is_asked_for(tmp_path: Path) -> None:
    assert runs(tmp_path, "", "console") == ["console"]
    assert runs(tmp_path, "providers: {hello: {enabled: true}}", "console") == ["hello", "console"]
    assert runs(tmp_path, "providers: {hello: {enabled: true}}") == ["hello"]
    key = "auth: {api_keys: [{sha256: " + "a" * 64 + ", subject: alice, scopes: [tools:call]}]}"
    assert runs(tmp_path, key, "console") == []


@pytest.mark.requirement("I33-console-there")
def test_an_entry_keeps_its_meaning(tmp_path: Path) -> None:
    assert runs(tmp_path, "providers: {console: {enabled: false}}", "console") == []
    assert runs(tmp_path, "providers: {watch: {type: console, enabled: true}}", "console") == ["watch"]
    assert runs(tmp_path, "providers: {watch: {type: console, enabled: false}}", "console") == []


def test_a_console_that_nobody_named_stops_no_start(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ROUTES, "utf-8")
    entry = "providers: {mine: {type: ./mine.py, enabled: true, public_routes: true}}"
    assert runs(tmp_path, entry, "console") == ["mine"]
    assert runs(tmp_path, "", "no_such_plugin") == []


def test_a_python_file_has_a_console_too(tmp_path: Path) -> None:
    file = tmp_path / "notes.py"
    file.write_text("from toolplug import tool\n\n@tool\ndef price() -> int:\n    return 5\n", "utf-8")
    found = read_configuration(ConfigFiles(file, defaults={"console": {"traces": True}}), {}, find_installed())
    assert list(found.providers.wanted) == ["notes", "console"]
    assert list(found.providers.keys) == ["notes"]
    assert found.providers.wanted["console"].entry.settings.traces


def test_a_browser_is_given_a_private_file_that_leads_to_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with page_opener("http://127.0.0.1:8080/console#decide=a-key&x") as open_page:
        asyncio.run(wait_for(open_page()))
        page = Path(opened[0].removeprefix("file://"))
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        leads = re.search(r"url=([^\"]+)\"", page.read_text("utf-8"))
    assert leads is not None
    assert leads[1] == "http://127.0.0.1:8080/console#decide=a-key&amp;x"
    assert "a-key" not in opened[0]
    assert not page.exists()
