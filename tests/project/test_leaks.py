"""The guards find a task, a thread and a process that a test leaves, and nothing else."""

from __future__ import annotations

import pytest
from tests.requirement_table import ROOT

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.process

CONFTEST = """
import pytest
from tests.leaks import leak_guard, loop_guard, pytest_configure, task_guard

@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"
"""

LEAKING = """
import asyncio, pytest, subprocess, sys, threading

KEPT = []

@pytest.mark.anyio
async def test_task():
    KEPT.append(asyncio.create_task(asyncio.Event().wait()))

def test_thread():
    done = threading.Event()
    KEPT.append(done)
    threading.Thread(target=done.wait, args=(30,), name="left").start()

def test_process():
    KEPT.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_end():
    KEPT[1].set()
    KEPT[2].communicate(b"\\n")
"""

CLEAN = """
import asyncio, pytest, threading, time

@pytest.fixture
async def tasks():
    mine = []
    yield mine
    for task in mine:
        task.cancel()

@pytest.mark.anyio
async def test_what_a_fixture_ends_is_no_leak(tasks):
    tasks.append(asyncio.create_task(asyncio.Event().wait()))

@pytest.mark.anyio
async def test_the_threads_of_the_loop_are_no_leak():
    await asyncio.to_thread(time.monotonic)

def test_a_daemon_thread_is_no_leak():
    threading.Thread(target=threading.Event().wait, args=(5,), daemon=True).start()

@pytest.mark.anyio
@pytest.mark.leaves("task")
async def test_what_is_left_on_purpose_is_no_leak():
    asyncio.create_task(asyncio.Event().wait())
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "anyio.pytest_plugin")
    pytester.makeconftest(CONFTEST)
    return pytester


def test_what_a_test_leaves_behind_fails_its_teardown(suite: pytest.Pytester) -> None:
    suite.makepyfile(LEAKING)
    result = suite.runpytest_subprocess()
    result.assert_outcomes(passed=4, errors=3)
    result.stdout.fnmatch_lines(["*tasks left behind:*", "*threads left behind: left", "*processes left behind: *"])


def test_what_ends_with_its_owner_passes(suite: pytest.Pytester) -> None:
    suite.makepyfile(CLEAN)
    suite.runpytest_subprocess().assert_outcomes(passed=4)
