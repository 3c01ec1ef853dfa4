"""A part of a host is imported when it is needed, and a toolplug without it works otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.requirement_table import ROOT

from toolplug.host.file.part_sections import BUILT_IN, built_in
from toolplug.part_protocols.host_part import HostPart

pytestmark = pytest.mark.process

DESCRIPTION = {"part", "settings", "limits"}
"""The modules of a part that describe it."""

NOTES = '''"""Notes."""

from toolplug import tool


@tool
def hello(name: str = "you") -> str:
    """Say hello."""
    return f"hello {name}"
'''

SERVED = """
import asyncio, json, sys

import toolplug, toolplug.http
from httpx2 import ASGITransport, AsyncClient

async def main():
    host = toolplug.open_host({"store": "memory://", "providers": {"notes": {"type": "./notes.py", "enabled": True}}})
    async with host:
        transport = ASGITransport(toolplug.http.create_app(host), client=("127.0.0.1", 1))
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            listed = await client.get("/v1/tools")
            call = {"id": "1", "name": "hello", "arguments": {}}
            called = await client.post("/v1/tool-calls", json=call)
            imported = sorted(name for name in sys.modules if name.startswith(("toolplug.parts.", "mcp.")))
            answers = [(await client.get(path)).status_code for path in json.loads(sys.argv[1])]
            described = (await client.get("/v1/openapi.json")).json()["paths"]
        return {
            "imported": imported,
            "tools": [item["function"]["name"] for item in listed.json()["tools"]],
            "output": called.json()["output"],
            "answers": answers,
            "described": sorted(described),
        }

found = asyncio.run(main())
"""
HELPED = """
import contextlib, io

from toolplug.cli.main import main

with contextlib.redirect_stdout(io.StringIO()) as printed:
    found["code"] = main(["--help"])
found["help"] = printed.getvalue().splitlines()
"""
"""Afterwards, as the command line imports more."""
TOLD = "print(json.dumps(found))"


def _run(tmp_path: Path, source: Path, *paths: str, then: str = "") -> dict[str, list[str]]:
    """Serve a file in a process that has toolplug from this folder, and ask for some paths."""
    (tmp_path / "notes.py").write_text(NOTES, "utf-8")
    return _python(tmp_path, SERVED + then + TOLD, source, json.dumps(paths))


def _python(tmp_path: Path, code: str, source: Path, *arguments: str) -> dict[str, list[str]]:
    """Run code in a process that has toolplug from this folder."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


READ = """
import json, sys

from toolplug.host.file.configuration import read_configuration
from toolplug.packages.entry_points import find_installed

read_configuration({"store": "memory://"}, {}, find_installed())
print(json.dumps({"before": sorted(name for name in sys.modules if name.startswith("toolplug.parts."))}))
"""


def _inside(modules: list[str], part: HostPart[Any]) -> set[str]:
    """Return the modules of a part, without the name of the part."""
    begin = f"toolplug.parts.{part.name}."
    return {name.removeprefix(begin) for name in modules if name.startswith(begin)}


def test_where_a_file_is_read_of_each_part_only_its_description_is_imported(tmp_path: Path) -> None:
    found = _python(tmp_path, READ, ROOT / "src")
    assert all(_inside(found["before"], part) <= DESCRIPTION for part in built_in()), found["before"]


def test_a_part_without_its_section_is_described_and_not_imported(tmp_path: Path) -> None:
    asked = [path for part in built_in() if part.settings and not part.always for path in part.paths]
    found = _run(tmp_path, ROOT / "src", *asked)
    for part in built_in():
        inside = _inside(found["imported"], part)
        if part.settings is None:  # it waits for its first request
            assert inside <= DESCRIPTION | {"running"}
        elif not part.always:
            assert inside <= DESCRIPTION
        else:  # it runs, and nobody has asked for its routes and commands
            assert "running" in inside
            assert not any(name.startswith(("http", "commands")) for name in inside)
    assert not any(name.startswith("mcp.") for name in found["imported"])
    assert (found["tools"], found["output"]) == (["hello"], "hello you")
    assert set(found["answers"]) <= {404, 405}
    assert {"/v1/responses", "/api/sessions"} <= {*found["described"]}


def test_the_routes_of_a_part_that_is_always_on_are_served(tmp_path: Path) -> None:
    always = [part for part in built_in() if part.always]
    # What stands below a path alone, as links to sign in do, has no answer of its own.
    paths = [path for part in always for path in part.paths if path in {route.path for route in part.routes()}]
    assert paths
    assert set(_run(tmp_path, ROOT / "src", *paths)["answers"]) == {200}


def _link_all_but(folder: Path, part: str) -> None:
    """Make a toolplug of links without the folder of a part: to copy it takes as long as to serve it."""
    (folder / "parts").mkdir(parents=True)
    whole = ROOT / "src" / "toolplug"
    for path in (*whole.iterdir(), *(whole / "parts").iterdir()):
        if path not in {whole / "parts", whole / "parts" / part}:
            (folder / path.relative_to(whole)).symlink_to(path)


@pytest.mark.parametrize("module", BUILT_IN)
def test_a_host_without_the_folder_of_a_part_starts_and_serves(tmp_path: Path, module: str) -> None:
    source, part = tmp_path / "src", next(each for each in built_in() if module.split(".")[2] == each.name)
    _link_all_but(source / "toolplug", part.name)
    others = [path for other in built_in() if other is not part for path in other.paths]
    found = _run(tmp_path, source, *(path for path in part.paths if path not in others), then=HELPED)
    assert (found["tools"], found["output"]) == (["hello"], "hello you")
    assert set(found["answers"]) <= {404}
    assert {route.path for route in part.routes()}.isdisjoint(found["described"])
    assert found["code"] == 0
    listed = "\n".join(found["help"])
    assert not any(f" {name} " in listed for name in part.commands)
    assert " call " in listed


ASKED = """
import asyncio, json

import toolplug

async def main():
    tools = {"hello": "ask"}
    notes = {"type": "./notes.py", "enabled": True, "tools": tools}
    caller = toolplug.Principal("ann", scopes=frozenset({"tools:call"}))
    async with toolplug.open_host({"store": "memory://", "providers": {"notes": notes}}) as host:
        result = await host.executor_for(caller).execute(toolplug.ToolCall("1", "hello"))
        waiting = await host.approvals.waiting("default")
    print(json.dumps({"status": result.status, "output": result.output, "waiting": len(waiting)}))

asyncio.run(main())
"""


def test_a_call_that_needs_an_approval_is_refused_without_the_part_that_asks(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(NOTES, "utf-8")
    assert _python(tmp_path, ASKED, ROOT / "src")["waiting"] == 1
    source = tmp_path / "src"
    _link_all_but(source / "toolplug", "approvals")
    found = _python(tmp_path, ASKED, source)
    assert (found["status"], found["waiting"]) == ("denied", 0)
    assert "a person must approve this call, and this host has no part that asks one" in found["output"]
