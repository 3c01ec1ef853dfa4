"""The packages `llm-tools-*` that others have published, in an environment of their own: loaded and called."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.environments import build_wheel, make_environment
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.timeout(900)]

PACKAGE = Path(__file__).parent.parent

ARGUMENTS = {
    "llm-tools-anki": {},
    "llm-tools-brave": {},
    "llm-tools-browser-history": {},
    "llm-tools-datasette": {"url": "http://127.0.0.1:9/"},
    "llm-tools-docker": {},
    "llm-tools-edit": {"path": ".", "db_path": "edit.db", "table_name": "files"},
    "llm-tools-exa": {},
    "llm-tools-execute-shell": {},
    "llm-tools-kit": {},
    "llm-tools-kiwix": {},
    "llm-tools-mcp": {"config_path": "mcp.json"},
    "llm-tools-memory": {},
    "llm-tools-openapi": {"openapi_url": "SERVER"},
    "llm-tools-patch": {},
    "llm-tools-quickjs": {},
    "llm-tools-rag": {},
    "llm-tools-readonly-fs": {"sandbox_dir": "."},
    "llm-tools-searxng": {},
    "llm-tools-searxng-md": {},
    "llm-tools-shodo": {},
    "llm-tools-simpleeval": {},
    "llm-tools-skills": {"skills_path": "skills"},
    "llm-tools-sqlite": {"path": "x.db"},
    "llm-tools-todo": {},
    "llm-tools-trigger-error": {},
    "llm-tools-yt-transcript": {},
}
"""Those that are plugins of `llm`, with what their toolboxes need."""
NO_PLUGINS = ("llm-tools-5", "llm-tools-cli", "llm-tools-server")
"""Packages of the same name that have no entry point of `llm`; a fourth, llm-tools-hub, needs an openai of 2023."""

CALLS = {
    "llm-tools-edit": ("Filesystem_view", {"path": "notes.txt"}, None),
    "llm-tools-execute-shell": None,  # asks its user at a terminal
    "llm-tools-kit": ("Kit_get_current_repository", {}, None),
    "llm-tools-mcp": ("double", {"number": 21}, "42"),
    "llm-tools-patch": ("Patch_read", {"file_path": "notes.txt"}, "otters"),
    "llm-tools-quickjs": ("QuickJS_execute_javascript", {"javascript": "6*7"}, "42"),
    "llm-tools-simpleeval": ("simple_eval", {"expression": "6*7"}, "42"),
    "llm-tools-sqlite": ("SQLite_query", {"sql": "select 6*7 as n"}, "42"),
    "llm-tools-todo": ("Todo_begin", {}, None),
    "llm-tools-trigger-error": ("trigger_error", {"message": "no such row"}, "no such row"),
}
"""A call for those that answer without a network or a key, and what its answer contains."""

SCRIPT = """
import asyncio, json, pathlib, sqlite3, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from toolplug import Principal, open_host

class Document(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"openapi": "3.0.0", "info": {"title": "t", "version": "1"}, "paths": {
            "/otters": {"get": {"operationId": "otters", "summary": "List otters.", "responses": {}}}}}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Document)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/openapi.json"
sqlite3.connect("x.db").execute("create table t (a)").connection.commit()
pathlib.Path("notes.txt").write_text("two otters")
pathlib.Path("server.py").write_text(
    "from mcp.server.fastmcp import FastMCP\\nmcp = FastMCP('m')\\n"
    "@mcp.tool()\\ndef double(number: int) -> int:\\n    'Double.'\\n    return 2 * number\\nmcp.run()\\n")
mcp = {"mcpServers": {"m": {"command": sys.executable, "args": ["server.py"]}}}
pathlib.Path("mcp.json").write_text(json.dumps(mcp))
pathlib.Path("skills/tea").mkdir(parents=True)
pathlib.Path("skills/tea/SKILL.md").write_text("---\\nname: tea\\ndescription: Make tea.\\n---\\nBoil water.\\n")
arguments, calls = json.load(sys.stdin)

async def main():
    me = Principal(subject="a", scopes=frozenset({"tools:call"}))
    found = {}
    # A host for each: on a busy machine all of them together take longer to import than a start may.
    for plugin, given in arguments.items():
        given = {key: url if value == "SERVER" else value for key, value in given.items()}
        entry = {"enabled": True, "required": False, "type": "llm", "plugin": plugin, "arguments": given}
        async with open_host({"store": "memory://", "providers": {"own": entry}}) as host:
            record = {record.key: record for record in host.records()}["own"]
            found[plugin] = [record.state, list(record.tools), record.reason, None]
            if calls.get(plugin):
                name, arguments_of_call, _ = calls[plugin]
                result = await host.executor_for(me).call(name, **arguments_of_call)
                found[plugin][3] = [result.status, result.output]
    print(json.dumps(found))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[str], str, list[str] | None]]:
    """State, tools, reason and the answer of a call, by plugin, of a host that has all of them."""
    folder = tmp_path_factory.mktemp("llm")
    core, plugin = (build_wheel(folder / "wheels", source) for source in (ROOT, PACKAGE))
    scripts = make_environment(folder / "venv", f"{core}[sqlite]", plugin, *ARGUMENTS, *NO_PLUGINS)
    given = json.dumps([{**ARGUMENTS, **{name: {} for name in NO_PLUGINS}}, CALLS])
    done = subprocess.run(
        [scripts / "python", "-c", SCRIPT],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=200,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.requirement("I39-llm-index")
def test_every_plugin_of_this_name_loads_unchanged(found: dict[str, tuple[str, list[str], str, object]]) -> None:
    failed = {name: found[name][2] for name in ARGUMENTS if found[name][0] != "active"}
    assert failed == {}, failed
    assert all(found[name][1] for name in ARGUMENTS)


@pytest.mark.requirement("I39-llm-index")
def test_those_that_need_no_network_answer(found: dict[str, tuple[str, list[str], str, list[str]]]) -> None:
    answers = {name: found[name][3] for name, call in CALLS.items() if call is not None}
    wrong = {
        name: answer
        for name, answer in answers.items()
        if answer[0] != ("tool_error" if name == "llm-tools-trigger-error" else "success")
        or (CALLS[name][2] or "") not in answer[1]
    }
    assert wrong == {}, wrong


@pytest.mark.requirement("I39-llm-index", "I39-broken")
@pytest.mark.parametrize("name", NO_PLUGINS)
def test_a_package_that_is_no_plugin_says_so(found: dict[str, tuple[str, list[str], str, object]], name: str) -> None:
    assert found[name][0] == "start-failed"
    assert "is no plugin of llm: it has no entry point 'llm'; remove the entry" in found[name][2]
