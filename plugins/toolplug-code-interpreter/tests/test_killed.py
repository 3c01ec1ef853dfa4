"""Hosts that are killed while their containers start, and requests that are cancelled, leave nothing running."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolplug_code_interpreter.sandbox.processes import descendants

pytestmark = [pytest.mark.judge, pytest.mark.needs("bwrap")]

HOST = """
import asyncio
from toolplug import CallContext, FunctionRegistry, ToolCall
from toolplug_code_interpreter.provider import CodeInterpreter

async def main():
    async with FunctionRegistry({"code_interpreter": CodeInterpreter({})}) as registry:
        input()
        print("starts", flush=True)
        call = ToolCall("c", "code_interpreter", {"code": "1"})
        await asyncio.gather(*(registry.execute(call, CallContext()) for _ in range(4)))
        input()

asyncio.run(main())
"""
"""Starts four containers as soon as it gets a line."""


@pytest.mark.requirement("I3-code-killed")
def test_hosts_that_are_killed_at_any_moment_of_a_start_leave_no_process() -> None:
    before = left()
    for milliseconds in range(0, 60, 6):
        with subprocess.Popen([sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
            assert host.stdin is not None
            assert host.stdout is not None
            host.stdin.write(b"\n")
            host.stdin.flush()
            assert host.stdout.readline() == b"starts\n"
            time.sleep(milliseconds / 1000)
            host.kill()
    within(10, lambda: left() <= before)


def within(seconds: float, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, left()
        time.sleep(0.05)


def left() -> set[int]:
    """The processes without a parent that are of containers or that keep their limits."""
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            lines = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
            mine = lines["Name"] == "bwrap" or b".sandbox.keeper import" in (folder / "cmdline").read_bytes()
            if mine and lines["PPid"] == "1" and not lines["State"].startswith("Z"):
                found.add(int(lines["Pid"]))
    return found


@pytest.mark.anyio
@pytest.mark.requirement("I3-code-containers")
async def test_requests_that_are_cancelled_at_any_moment_leave_nothing_running(small: Any) -> None:
    code = (
        "import threading, time\n"
        "def tick():\n    while True:\n        open('thread', 'a').write('x')\n        time.sleep(0.001)\n"
        "threading.Thread(target=tick, daemon=True).start()"
    )
    boxes = await asyncio.gather(*(small.one.container() for _ in range(8)))
    await asyncio.gather(*(small.one.run(code, box) for box in boxes))
    for number, box in enumerate(boxes * 2):
        with anyio.move_on_after(0.0015 * number):
            await small.one.http.post(f"/v1/containers/{box}/files", files={"file": ("f", b"x")})
        assert running_threads() == []


def running_threads() -> list[str]:
    """The threads of this process's containers that are not stopped."""
    outer = [each for each in descendants(os.getpid()) if Path(f"/proc/{each}/comm").read_text() == "bwrap\n"]
    stats = [
        file
        for each in outer
        for worker in descendants(each)[1:]
        for file in Path(f"/proc/{worker}/task").glob("*/stat")
    ]
    return [stat for stat in (file.read_text() for file in stats) if stat.rpartition(") ")[2][0] not in "TZ"]
