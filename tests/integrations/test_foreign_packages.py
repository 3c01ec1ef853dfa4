"""The page of each adapter, followed in an environment of its own with three packages that others have published."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cli.process import toolplug
from tests.docs.reader import Reader
from tests.environments import CONSOLE, INSTALL_S, build_wheel, install_into, make_environment
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.timeout(900)]


class Followed(NamedTuple):
    """One adapter: packages as they are on the index, entries of the configuration, calls by tool, and files.

    A call has arguments and a part of its output; None is a tool that needs a network, and is listed only.
    """

    packages: tuple[str, ...]
    entries: str
    calls: Mapping[str, tuple[Mapping[str, object], str] | None]
    files: Mapping[str, str] = {}


CALL = """
import asyncio, json, sys
from toolplug import Principal, open_host

async def main():
    async with open_host("providers.yaml") as host:
        tools = host.executor_for(Principal(subject="ada", scopes=frozenset({"tools:call"})))
        answers = {}
        for name, arguments in json.loads(sys.argv[1]).items():
            if arguments is None:
                answers[name] = ("listed" if name in tools.catalog else "missing", "")
            else:
                result = await tools.call(name, **arguments)
                answers[name] = (result.status, result.output)
        print(json.dumps(answers))

asyncio.run(main())
"""
"""Calls the tools in one process: each command of the shell would import the framework again."""

PAGES: Mapping[str, Followed] = {
    "llm": Followed(
        ("llm-tools-simpleeval", "llm-tools-sqlite", "llm-tools-quickjs"),
        """
  calculator: {enabled: true, type: llm, plugin: llm-tools-simpleeval}
  orders: {enabled: true, type: llm, plugin: llm-tools-sqlite, arguments: {path: orders.db}}
  script: {enabled: true, type: llm, plugin: llm-tools-quickjs}
""",
        {
            "simple_eval": ({"expression": "6*7"}, "42"),
            "SQLite_query": ({"sql": "select 6*7 as n"}, "42"),
            "QuickJS_execute_javascript": ({"javascript": "6*7"}, "42"),
        },
    ),
    "langchain": Followed(
        ("langchain-community", "langchain-experimental", "langchain-greencalculus"),
        """
  files:
    enabled: true
    type: langchain
    tool: langchain_community.agent_toolkits:FileManagementToolkit
    arguments: {root_dir: .}
  python: {enabled: true, type: langchain, tool: langchain_experimental.tools:PythonREPLTool}
  factors:
    enabled: true
    type: langchain
    tool: langchain_greencalculus:EmissionFactorLookup
    arguments: {api_key: none}
""",
        {
            "write_file": ({"file_path": "a.txt", "text": "otters"}, "File written successfully"),
            "Python_REPL": ({"query": "print(6*7)"}, "42"),
            "lookup_emission_factor": None,
        },
    ),
    "llama-index": Followed(
        ("llama-index-tools-code-interpreter", "llama-index-tools-database", "llama-index-tools-artifact-editor"),
        """
  code: {enabled: true, type: llama_index, spec: "llama_index.tools.code_interpreter:CodeInterpreterToolSpec"}
  shop:
    enabled: true
    type: llama_index
    spec: llama_index.tools.database:DatabaseToolSpec
    arguments: {uri: "sqlite:///orders.db"}
  note: {enabled: true, type: llama_index, spec: "./own_tools.py:editor"}
""",
        {
            "code_interpreter": ({"code": "print(6*7)"}, "42"),
            "load_data": ({"query": "select 6*7 as n"}, "42"),
            "get_current_artifact": ({}, "otters"),
        },
        {
            "own_tools.py": """
from llama_index.tools.artifact_editor import ArtifactEditorToolSpec
from pydantic import BaseModel

class Note(BaseModel):
    text: str

def editor():
    return ArtifactEditorToolSpec(Note, Note(text="otters"))
"""
        },
    ),
    "fastmcp": Followed(
        ("casual-mcp-server-time", "cli-executor-mcp", "better-mcps-filesystem"),
        """
  dates: {enabled: true, type: fastmcp, server: casual_mcp_server_time.server}
  shell: {enabled: true, type: fastmcp, server: "cli_executor.server:mcp"}
  files: {enabled: true, type: fastmcp, server: better_mcps_filesystem.server}
""",
        {
            "is_leap_year": ({"year": 2024}, "true"),
            "execute_command": ({"command": "echo 42"}, "42"),
            "list_dir": None,
        },
    ),
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The wheels of toolplug, with its extra, and of its console."""
    folder = tmp_path_factory.mktemp("wheels")
    return f"{build_wheel(folder, ROOT)}[server]", build_wheel(folder, CONSOLE)


@pytest.mark.requirement("I39-pages-followed")
@pytest.mark.parametrize("adapter", PAGES)
def test_the_page_of_an_adapter_serves_three_packages_of_others(
    adapter: str, wheels: tuple[str, Path], tmp_path: Path
) -> None:
    page = PAGES[adapter]
    own = build_wheel(tmp_path / "wheels", ROOT / "plugins" / f"toolplug-{adapter}")
    scripts = make_environment(tmp_path / "venv", *wheels, own, *page.packages)
    for name, text in {"providers.yaml": f"store: memory://\nproviders:{page.entries}", **page.files}.items():
        (tmp_path / name).write_text(text, "utf-8")
    with closing(sqlite3.connect(tmp_path / "orders.db")) as database:
        database.execute("create table orders (price int)")
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    checked = run([scripts / "toolplug", "check", "--start"])
    assert (checked.returncode, checked.stdout) == (0, "providers.yaml is valid: 3 providers enabled\n"), checked.stderr
    calls = {name: call and call[0] for name, call in page.calls.items()}
    done = run([scripts / "python", "-c", CALL, json.dumps(calls)])
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    for name, call in page.calls.items():
        status, output = answers[name]
        assert (status, call is None or call[1] in output) == ("listed" if call is None else "success", True), output


@pytest.mark.requirement("I39-first-plugin")
def test_a_stranger_serves_a_plugin_by_the_page_of_llm_alone(wheels: tuple[str, Path], tmp_path: Path) -> None:
    """On two busy cores: 80 s for pip with an empty cache, 15 s for all else, of the three minutes that it may take."""
    page = (ROOT / "docs/how-to/use-llm-plugins.md").read_text("utf-8")
    install = shlex.split(page.partition("Install: `pip install ")[2].partition("`")[0])
    assert install[:2] == ["toolplug[server]", "toolplug-llm"]
    own = build_wheel(tmp_path / "wheels", ROOT / "plugins/toolplug-llm")
    scripts = make_environment(tmp_path / "clean", *wheels, own, *install[2:])
    (site,) = scripts.parent.glob("lib/*/site-packages")
    with Reader(tmp_path, {}, packages=[str(site)]) as reader:
        reader.read(page)


@pytest.mark.requirement("I39-adapters-apart")
def test_env_makes_the_environment_of_a_plugin_that_the_host_has_not(tmp_path: Path) -> None:
    own = build_wheel(tmp_path / "wheels", ROOT / "plugins/toolplug-llm")
    run = {"process": True, "python": "./env/bin/python", "package": f"toolplug-llm @ {own.as_uri()}"}
    entry = {"enabled": True, "type": "llm", "plugin": "llm-tools-quickjs", "run": run}
    (tmp_path / "providers.yaml").write_text(json.dumps({"store": "memory://", "providers": {"script": entry}}))
    made = toolplug("env", "script", folder=tmp_path, patience_s=INSTALL_S)
    assert made.code == 0, made.err
    lacks = toolplug("check", "--start", folder=tmp_path)
    assert "no package 'llm-tools-quickjs' is installed: pip install llm-tools-quickjs" in lacks.out, lacks.err
    install_into(tmp_path / "env/bin/python", "llm-tools-quickjs")
    called = toolplug("call", "QuickJS_execute_javascript", "javascript=6*7", folder=tmp_path)
    assert (called.code, called.out.strip()) == (0, "42"), called.err
