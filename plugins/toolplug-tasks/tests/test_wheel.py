"""The package works from the wheel that is built of it, in an environment of its own."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from tests.environments import install_wheels

pytestmark = [pytest.mark.judge, pytest.mark.timeout(600)]

PACKAGE = Path(__file__).parent.parent
USE = """
import asyncio
from pathlib import Path
from toolplug.testing import in_process_host

Path("tools.py").write_text('''
from toolplug import tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
''')
CONFIG = {"tasks": {}, "providers": {"own": {"type": "./tools.py", "enabled": True}}}

async def main():
    async with in_process_host(CONFIG, folder=Path(".")) as served:
        client = served.callers["anonymous"].client
        call = {"name": "add", "arguments": {"a": 40, "b": 2}}
        begun = await client.post("/v1/tool-calls", json=call, headers={"Prefer": "respond-async"})
        task = begun.json()
        while task["status"] == "working":
            await asyncio.sleep(0.05)  # a request in process need not wait for anything
            task = (await client.get(begun.headers["location"])).json()
        print(begun.status_code, task["status"], task["result"]["content"][0]["text"])

asyncio.run(main())
"""


@pytest.mark.requirement("I39-adapters-wheels")
def test_the_wheel_runs_a_task_in_an_environment_of_its_own(tmp_path: Path) -> None:
    scripts, wheel = install_wheels(tmp_path, "server,mcp,testing", "", PACKAGE)
    with zipfile.ZipFile(wheel) as archive:
        (points,) = (archive.read(name) for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert points.decode().split() == ["[toolplug.providers]", "tasks", "=", "toolplug_tasks.provider:Tasks"]
    used = subprocess.run(
        [scripts / "python", "-c", USE], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=150
    )
    assert (used.returncode, used.stdout.split()) == (0, ["202", "completed", "42"]), used.stderr
