"""Hosts that are killed while their containers start leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

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
    for milliseconds in range(0, 60, 3):
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
