"""Every test has one marker of `KINDS`, and a unit test that is none fails and says which marker to set."""

from __future__ import annotations

import pytest
from tests.markers import KINDS, QUICK
from tests.requirement_table import ROOT

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.process

NO_UNIT_TESTS = """
import asyncio, os, pytest, socket, subprocess, sys, threading

def test_child():
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)

def test_fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

def test_spawn():
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", ""], {}), 0)

def test_asyncio_child():
    async def run():
        process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "")
        await process.wait()
    asyncio.run(run())

def test_server():
    async def serve():
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        server.close()
    asyncio.run(serve())

def test_connection_in_a_thread():
    def connect():
        with socket.socket() as client:
            client.connect_ex(("127.0.0.1", 9))
    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()

@pytest.mark.slow
def test_slow_child():
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)

@pytest.fixture(scope="module")
def port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield server.getsockname()[1]

def test_fixture(port):
    pass
"""

OTHERS = """
import asyncio, pytest, socket, subprocess, sys

@pytest.mark.process
def test_with_its_marker():
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))

def test_of_an_event_loop():
    asyncio.run(asyncio.sleep(0))
"""

LEFT_OPEN = """
import gc, pytest

tries = []

class Cycle:
    def __init__(self):
        self.me = self
        self.file = open(__file__)

@pytest.mark.process
def test_first():
    tries.append(1)
    left = Cycle()
    assert len(tries) > 1
    left.file.close()

def test_innocent():
    gc.collect()
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_rerunfailures")
    pytester.makeini("\n  ".join(["[pytest]\nmarkers =", *KINDS]))
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("-p", "tests.markers", *arguments)


def test_a_unit_test_that_starts_a_process_or_uses_the_network_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile(NO_UNIT_TESTS)
    result = run(suite)
    result.assert_outcomes(failed=7, errors=1)
    marker = "mark it with one of `process`, `browser`, `mcp`, `framework`, `wire`, `judge` (tests/README.md)"
    result.stdout.fnmatch_lines_random(
        [
            f"a unit test starts a process (subprocess.Popen *): {marker}",
            f"a slow test starts a process (subprocess.Popen *): {marker}",
            f"a unit test starts a process (os.fork): {marker}",
            f"a unit test starts a process (os.posix_spawn *): {marker}",
            f"a unit test uses the network (socket.bind ('127.0.0.1', 0)): {marker}",
            f"a unit test uses the network (socket.connect ('127.0.0.1', 9)): {marker}",
        ]
    )


def test_a_test_with_another_marker_and_an_event_loop_pass(suite: pytest.Pytester) -> None:
    suite.makepyfile(OTHERS)
    run(suite).assert_outcomes(passed=2)
    run(suite, "-m", "unit").assert_outcomes(passed=1, deselected=1)


def test_what_a_failed_attempt_has_left_open_fails_no_other_test(suite: pytest.Pytester) -> None:
    suite.makepyfile(LEFT_OPEN)
    run(suite, "-W", "error").assert_outcomes(passed=2)


def test_a_module_is_not_imported_where_none_of_its_tests_runs(suite: pytest.Pytester) -> None:
    marks = "[\n    pytest.mark.framework,\n    pytest.mark.timeout(9),\n]"
    suite.makepyfile(
        test_it=f"import pytest\npytestmark = {marks}\nraise RuntimeError('was imported')", test_other=OTHERS
    )
    run(suite, "-m", "unit or slow").assert_outcomes(passed=1, deselected=1)
    run(suite, "-m", QUICK).assert_outcomes(passed=2)
    run(suite, "-m", "judge").assert_outcomes()
    run(suite, "-m", "framework").assert_outcomes(errors=1)
    run(suite).assert_outcomes(errors=1)


def test_a_test_with_two_markers_stops_the_collection(suite: pytest.Pytester) -> None:
    suite.makepyfile("import pytest\n\n@pytest.mark.judge\n@pytest.mark.mcp\ndef test_it():\n    pass")
    result = run(suite)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it has more than one of the markers *judge*mcp*"])
