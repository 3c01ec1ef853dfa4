"""Fails a test that leaves a task, a thread or a child process behind.

The guards are set up before a test's own fixtures and look after those are closed, so that what a fixture owns may live
as long as the fixture. A test that must leave something (a tool that will not go) says so with `leaves("task")`,
`leaves("thread")` or `leaves("process")`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from toolplug.testing.provider_rules.life import children

TURNS = 20
"""Turns of the loop in which a cancelled or finished task may still end."""

GRACE_S = 2.0
"""How long a thread or process that was told to end may still take."""

POLL_S = 0.01


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "leaves(kind): this test leaves a task, thread or process behind on purpose")


@pytest.fixture(autouse=True)
def leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compares threads and child processes; the last teardown of a test, after its event loop is closed."""
    threads, before = set(threading.enumerate()), children()
    yield
    allowed = _allowed(request)
    if "thread" not in allowed:
        _fail_on_threads(set(threading.enumerate()) - threads)
    if "process" not in allowed:
        _fail_on_processes(children() - before)


@pytest.fixture(autouse=True)
def task_guard(leak_guard: None, request: pytest.FixtureRequest) -> None:
    """Asks for `loop_guard` in an asynchronous test: a synchronous one has no loop to look at."""
    if "anyio_backend" in request.fixturenames and "task" not in _allowed(request):
        request.getfixturevalue("loop_guard")


@pytest.fixture
async def loop_guard() -> AsyncIterator[None]:
    """Compares the loop's tasks before the first and after the last function fixture."""
    before = asyncio.all_tasks()
    yield
    new = {task for task in asyncio.all_tasks() - before if not _is_of_the_runner(task)}
    for _ in range(TURNS):
        if all(task.done() for task in new):
            return
        await asyncio.sleep(0)
    left = sorted(repr(task) for task in new if not task.done())
    pytest.fail("tasks left behind:\n" + "\n".join(left), pytrace=False)


def _allowed(request: pytest.FixtureRequest) -> set[str]:
    return {kind for marker in request.node.iter_markers("leaves") for kind in marker.args}


def _is_of_the_runner(task: asyncio.Task[object]) -> bool:
    """anyio's test runner makes a task of its own around each test and fixture."""
    return getattr(task.get_coro(), "__qualname__", "").startswith("TestRunner.")


def _fail_on_threads(new: set[threading.Thread]) -> None:
    for thread in new:
        if not thread.daemon:
            thread.join(GRACE_S)
    left = sorted(thread.name for thread in new if not thread.daemon and thread.is_alive())
    if left:
        pytest.fail(f"threads left behind: {', '.join(left)}", pytrace=False)


def _fail_on_processes(new: set[int]) -> None:
    ends = monotonic() + GRACE_S
    while (left := new & children()) and monotonic() < ends:
        sleep(POLL_S)
    if left:
        pytest.fail("child processes left behind: " + ", ".join(_command(pid) for pid in sorted(left)), pytrace=False)


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        words = ""
    return f"{pid} {words or '(no command line)'}"
