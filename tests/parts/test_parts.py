"""A part of a host is imported when the file names it, and a toolplug without it works otherwise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.requirement_table import ROOT

from toolplug.host.file.part_sections import BUILT_IN, built_in

pytestmark = pytest.mark.process

ALWAYS_OPEN = {"toolplug.parts.mcp.running"}
"""What is imported of parts that need no section: what waits for their first request."""

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
            described = (await client.get("/openapi.json")).json()["paths"]
        print(json.dumps({
            "imported": imported,
            "tools": [item["function"]["name"] for item in listed.json()["tools"]],
            "output": called.json()["output"],
            "answers": answers,
            "described": sorted(described),
        }))

asyncio.run(main())
"""


def _run(tmp_path: Path, source: Path, *paths: str) -> dict[str, list[str]]:
    """Serve a file in a process that has toolplug from this folder, and ask for some paths."""
    (tmp_path / "notes.py").write_text(NOTES, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SERVED, json.dumps(paths)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_part_without_its_section_is_described_and_not_imported(tmp_path: Path) -> None:
    found = _run(tmp_path, ROOT / "src", "/v1/models")
    folders = {f"toolplug.parts.{part.name}" for part in built_in()}
    described = {f"{folder}.{module}" for folder in folders for module in ("limits", "settings", "part")}
    imported = {name for name in found["imported"] if name.startswith(("mcp.", *folders))}
    assert imported <= folders | described | ALWAYS_OPEN
    assert (found["tools"], found["output"]) == (["hello"], "hello you")
    assert found["answers"] == [404]
    assert "/v1/responses" in found["described"]


@pytest.mark.parametrize("module", BUILT_IN)
def test_a_host_without_the_folder_of_a_part_starts_and_serves(tmp_path: Path, module: str) -> None:
    source, part = tmp_path / "src", next(each for each in built_in() if module.split(".")[2] == each.name)
    shutil.copytree(ROOT / "src" / "toolplug", source / "toolplug", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(source / "toolplug" / "parts" / part.name)
    found = _run(tmp_path, source, *part.paths)
    assert (found["tools"], found["output"]) == (["hello"], "hello you")
    assert set(found["answers"]) == {404}
    assert not any(path.startswith(part.paths) for path in found["described"])
    listed = subprocess.run(
        [sys.executable, "-m", "toolplug", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    assert not any(f" {name} " in listed.stdout for name in part.commands)
    assert " call " in listed.stdout
