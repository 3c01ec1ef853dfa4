"""`toolplug serve --workers`: several processes behind one port."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.conftest import Run
from tests.cli.process import PATIENCE_S, Serving, serving, toolplug

from toolplug.client import Application

pytestmark = pytest.mark.requirement("I17-2-workers")

TWO = "providers: {hello: {enabled: true, limits: {drain: 2s}}}\nstore: sqlite:///./state.db"


def pids(service: Serving) -> list[int]:
    """The processes of the workers, by their numbers."""
    return [int(pid) for pid in re.findall(r"process (\d+)", service.wait_for(" workers serve ("))]


def samples(service: Serving) -> dict[tuple[str, str], float]:
    """The values at `/metrics` by name and `worker`."""
    text = httpx2.get(f"{service.url}/metrics", timeout=PATIENCE_S).text
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, sample.labels.get("worker", "")
            found[key] = found.get(key, 0.0) + sample.value
    return found


def calls(service: Serving, count: int) -> None:
    """Make this many calls, each on a connection of its own."""
    for _ in range(count):
        assert service.call("hello").json()["output"] == "Hello, world!"


@pytest.mark.process
def test_workers_serve_one_port_until_a_signal(tmp_path: Path, run: Run, write: Callable[..., Path]) -> None:
    write(TWO)
    with serving("--workers", "2", folder=tmp_path) as service:
        calls(service, 20)
        first, second = pids(service)
        found = samples(service)
        requests = found["antwort_http_requests_total", ""]
        assert requests >= 20
        assert (found["antwort_worker_up", "1"], found["antwort_worker_up", "2"]) == (1.0, 1.0)
        assert found["antwort_config_last_reload_successful", "2"] == 1.0

        assert run("call", "hello").code == 0
        refused = toolplug("serve", "--port", str(service.url.rpartition(":")[2]), "--workers", "2", folder=tmp_path)
        assert (refused.code, "cannot listen on" in refused.err) == (1, True)

        service.send(signal.SIGHUP)
        service.wait_for("configuration reloaded", times=2)
        workers = {json.loads(line)["worker"] for line in service.lines if "configuration reloaded" in line}
        assert workers == {1, 2}

        os.kill(second, signal.SIGKILL)
        service.wait_for("worker 2 (process")
        service.wait_for('"provider hello (hello): active", "worker": 2', times=2)
        calls(service, 10)
        assert samples(service)["antwort_http_requests_total", ""] >= requests + 10

        service.send(signal.SIGTERM)
        assert service.end() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)


def test_what_serves_one_process_only_is_refused(run: Run, write: Callable[..., Path]) -> None:
    write("store: memory://")
    done = run("serve", "--workers", "2", "--json")
    assert (done.code, done.codes) == (1, ["store_not_shared"])
    done = run("serve", "--workers", "2", "--reload")
    assert (done.code, "--reload runs one process" in done.err) == (2, True)


@pytest.mark.judge
def test_a_worker_that_cannot_start_ends_the_server(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(TWO.replace("2s", "0"))
    with serving(folder=tmp_path) as alone:
        alone.wait_for("toolplug listening on ")
        done = toolplug("serve", "--port", "0", "--workers", "2", folder=tmp_path)
        assert done.code == 1
        assert done.err.count(f"is served by process {alone.process.pid} on ") >= 1
        assert "worker 1 has ended with exit code 1 before it served" in done.err


@pytest.mark.judge
def test_workers_that_die_again_and_again_end_the_server(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(TWO)
    with serving("--workers", "4", folder=tmp_path) as service:
        workers = pids(service)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        service.wait_for("another one is started", times=4)
        started = service.wait_for('"provider hello (hello): active"', times=5)
        assert "worker" in started
        found = subprocess.run(["pgrep", "-P", str(service.process.pid)], capture_output=True, text=True, check=True)
        os.kill(int(found.stdout.split()[0]), signal.SIGKILL)
        service.wait_for("5 workers have died within 30 s: the server ends")
        assert service.end() == 1


@pytest.mark.judge
def test_workers_end_with_their_parent(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(TWO)
    with serving("--workers", "2", folder=tmp_path) as service:
        workers = pids(service)
        service.process.kill()
        for pid in workers:
            give_up_at = time.monotonic() + PATIENCE_S
            while Path(f"/proc/{pid}").exists():
                assert time.monotonic() < give_up_at
                time.sleep(0.05)


@pytest.mark.judge
def test_no_request_is_lost_while_workers_end_and_are_replaced(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(TWO)
    with serving("--workers", "2", folder=tmp_path) as service, ThreadPoolExecutor(2) as callers:
        workers = pids(service)
        failures: list[str] = []
        going = True

        def call() -> int:
            made = 0
            while going:
                try:
                    assert service.call("hello").json()["output"] == "Hello, world!"
                except Exception as error:
                    failures.append(repr(error))
                made += 1
                time.sleep(0.01)  # the workers that start need time too
            return made

        running = [callers.submit(call) for _ in range(2)]
        try:
            for number, pid in enumerate(workers, 1):
                time.sleep(1)
                os.kill(pid, signal.SIGTERM)
                service.wait_for(f"worker {number} (process {pid}) has ended with exit code 0")
                service.wait_for('"provider hello (hello): active"', times=2 + number)
                time.sleep(2)
        finally:
            going = False
        assert sum(each.result() for each in running) > 100
        assert failures == []


@pytest.mark.judge
@pytest.mark.anyio
async def test_an_application_answers_calls_of_every_worker(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(TWO)
    with serving("--workers", "2", folder=tmp_path) as service:
        application = Application(service.url, plugin_type="diary")

        @application.tool
        async def double(number: int) -> int:
            return 2 * number

        async with application:
            for number in range(30):  # on a connection each, so that both workers are asked
                call = {"name": "double", "arguments": {"number": number}, "session": application.code}
                async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
                    answer = await client.post(f"{service.url}/v1/tool-calls", json=call)
                assert answer.json()["output"] == str(2 * number)


@pytest.mark.judge
def test_a_worker_that_ends_serves_the_connections_that_it_has(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(TWO)
    with serving("--workers", "2", folder=tmp_path) as service, ExitStack() as opened:
        address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
        connections = [opened.enter_context(socket.create_connection(address)) for _ in range(16)]
        time.sleep(0.5)
        os.kill(pids(service)[0], signal.SIGTERM)
        time.sleep(0.15)
        for connection in connections:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for connection in connections:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.judge
def test_a_worker_that_does_not_answer_is_reported_and_its_counts_stay(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    write(TWO)
    with serving("--workers", "2", folder=tmp_path) as service:
        workers = pids(service)
        calls(service, 10)
        before = samples(service)["antwort_http_requests_total", ""]
        os.kill(workers[1], signal.SIGSTOP)
        try:
            for _ in range(20):  # the stopped one still gets its share of the connections
                try:
                    text = httpx2.get(f"{service.url}/metrics", timeout=3).text
                    break
                except httpx2.TimeoutException:
                    continue
            assert 'antwort_worker_up{worker="2"} 0.0' in text
            counted = re.findall(r"^antwort_http_requests_total\{.*\} (.*)$", text, re.MULTILINE)
            assert sum(map(float, counted)) >= before
        finally:
            os.kill(workers[1], signal.SIGCONT)


APPLICATION = """
from toolplug import open_host
from toolplug.http import create_app
from starlette.applications import Starlette
from starlette.routing import Mount

host = open_host("providers.yaml")
app = Starlette(routes=[Mount("/", create_app(host))], lifespan=host.lifespan)
"""


@pytest.fixture
def port() -> int:
    """A port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.judge
@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_the_workers_of_another_server_share_the_store(
    tmp_path: Path, write: Callable[..., Path], port: int, server: str
) -> None:
    write(TWO + "?shared=true")
    (tmp_path / "application.py").write_text(APPLICATION)
    options = {
        "uvicorn": ["--port", str(port), "--workers", "2"],
        "gunicorn": [
            "--bind",
            f"127.0.0.1:{port}",
            "--workers",
            "2",
            "--worker-class",
            "uvicorn_worker.UvicornWorker",
        ],
    }
    command = [sys.executable, "-m", server, *options[server], "application:app"]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True) as process:
        try:
            give_up_at = time.monotonic() + PATIENCE_S
            sockets = 0
            while sockets < 2:
                assert time.monotonic() < give_up_at
                time.sleep(0.1)
                folder = tmp_path / "state.db-wake"
                sockets = len(list(folder.iterdir())) - 1 if folder.exists() else 0
            # A worker has opened the store before it listens.
            while True:
                with suppress(httpx2.ConnectError):
                    httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_S)
                    break
                assert time.monotonic() < give_up_at
                time.sleep(0.1)
            body = {"name": "hello", "arguments": {}}
            for _ in range(10):
                answer = httpx2.post(f"http://127.0.0.1:{port}/v1/tool-calls", json=body, timeout=PATIENCE_S)
                assert answer.json()["output"] == "Hello, world!"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)
