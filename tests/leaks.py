"""Fails a test that leaves a task, a thread or a child process behind.

The guards are set up before a test's own fixtures and look after those are closed, so that what a fixture owns may live
as long as the fixture. A test that must leave something (a tool that will not go) says so with `leaves("task")`,
`leaves("thread")` or `leaves("process")`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

TURNS = 20
"""Turns of the loop in which a cancelled or finished task may still end."""

GRACE_S = 2.0
"""How long a thread or process that was told to end may still take."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "leaves(kind): this test leaves a task, thread or process behind on purpose")


@pytest.fixture
async def task_guard() -> AsyncIterator[None]:
    """Compares the loop's tasks before the first and after the last function fixture."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before
    for _ in range(TURNS):
        if not left:
            return
        await asyncio.sleep(0)
        left = {task for task in left if not task.done()}
    if left:
        pytest.fail("tasks left behind:\n" + "\n".join(sorted(repr(task) for task in left)), pytrace=False)


@pytest.fixture(autouse=True)
def leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Looks for what the test left; fails its teardown with the names."""
    allowed = {kind for marker in request.node.iter_markers("leaves") for kind in marker.args}
    if "anyio_backend" in request.fixturenames and "task" not in allowed:
        request.getfixturevalue("task_guard")
    threads, children = set(threading.enumerate()), _children()
    yield
    if "thread" not in allowed:
        _fail_on_threads(set(threading.enumerate()) - threads)
    if "process" not in allowed:
        _fail_on_processes(_children() - children)


def _fail_on_threads(new: set[threading.Thread]) -> None:
    for thread in new:
        if not thread.daemon:
            thread.join(GRACE_S)
    left = sorted(thread.name for thread in new if not thread.daemon and thread.is_alive())
    if left:
        pytest.fail(f"threads left behind: {', '.join(left)}", pytrace=False)


def _fail_on_processes(new: set[int]) -> None:
    left = new & _children()
    if left:
        pytest.fail("child processes left behind: " + ", ".join(_command(pid) for pid in sorted(left)), pytrace=False)


def _children() -> set[int]:
    """The process ids of our children, zombies included; empty where `/proc` does not tell."""
    found: set[int] = set()
    for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        try:
            found.update(int(pid) for pid in path.read_text().split())
        except OSError:
            continue  # the thread ended between the listing and the reading
    return found


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        words = ""
    return f"{pid} {words or '(ended, not waited for)'}"
