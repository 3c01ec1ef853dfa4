"""Signals that reach `toolplug serve` before it serves, and the port that the next one binds."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.process import PATIENCE_S, Serving, serving

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes by /proc")

CONFIG = "providers: {hello: {enabled: true, limits: {drain: 0}}}\nstore: sqlite:///./state.db"
MOMENTS_S = [0.1 * number for number in range(30)]
SERVED = 5
"""So many moments after the start are enough."""


def until(holds: Callable[[], bool]) -> None:
    """Look again and again until it holds."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def handles_signals(service: Serving) -> bool:
    """Whether the process has a handler for SIGTERM, the last one that it installs."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def children(service: Serving) -> list[int]:
    """The processes that the server has started."""
    pid = service.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of_worker(service: Serving) -> list[str]:
    """The command line of the first worker, empty before there is one; at first it is still that of the parent."""
    started = children(service)
    return Path(f"/proc/{started[0]}/cmdline").read_text().split("\0") if started else []


@pytest.mark.process
@pytest.mark.requirement("C-10-signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("options", [(), ("--workers", "2"), ("--stdio",)])
def test_a_signal_during_the_imports_ends_it_with_0(
    tmp_path: Path, write: Callable[..., Path], number: signal.Signals, options: tuple[str, ...]
) -> None:
    write(CONFIG)
    with serving(*options, folder=tmp_path) as service:
        until(lambda: handles_signals(service))
        service.send(number)
        assert (service.end(), service.lines) == (0, [])


@pytest.mark.process
@pytest.mark.requirement("C-10-signals")
def test_a_reload_that_comes_during_the_imports_does_not_end_it(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(CONFIG)
    with serving(folder=tmp_path) as service:
        until(lambda: handles_signals(service))
        service.send(signal.SIGHUP)
        assert service.call("hello").json()["output"] == "Hello, world!"


@pytest.mark.process
@pytest.mark.requirement("C-10-signals")
def test_workers_that_have_just_been_started_end_with_0(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(CONFIG)
    with serving("--workers", "2", folder=tmp_path) as service:
        until(lambda: len(children(service)) == 1)
        service.send(signal.SIGTERM)
        assert service.end() == 0


@pytest.mark.process
@pytest.mark.requirement("C-10-signals")
def test_a_worker_that_has_just_been_started_ends_with_0_after_the_first_one_serves(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    write(CONFIG)
    with serving("--workers", "2", folder=tmp_path) as service:
        until(lambda: len(children(service)) == 2)
        service.send(signal.SIGTERM)
        assert service.end() == 0


@pytest.mark.judge
@pytest.mark.long(30)
@pytest.mark.requirement("C-10-signals")
@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_a_signal_at_any_moment_of_the_start_ends_it_with_0(
    tmp_path: Path, write: Callable[..., Path], options: tuple[str, ...]
) -> None:
    write(CONFIG)
    served = 0
    for moment_s in MOMENTS_S:
        with serving(*options, folder=tmp_path) as service:
            until(lambda: handles_signals(service))
            time.sleep(moment_s)
            served += any("toolplug listening on" in line for line in service.lines)
            service.send(signal.SIGTERM)
            assert (moment_s, service.end()) == (moment_s, 0)
            assert not [line for line in service.lines if "Traceback" in line]
        if served == SERVED:
            break


@pytest.mark.process
@pytest.mark.requirement("C-10-binds-again")
@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_a_server_with_a_connected_client_can_be_started_again_at_once(
    tmp_path: Path, write: Callable[..., Path], options: tuple[str, ...]
) -> None:
    write(CONFIG)
    with serving(*options, folder=tmp_path) as service:
        port = service.url.rpartition(":")[2]
        with socket.create_connection(("127.0.0.1", int(port))) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
            service.send(signal.SIGTERM)
            assert service.end() == 0
            with serving(*options, "--port", port, folder=tmp_path) as again:
                assert again.call("hello").json()["output"] == "Hello, world!"


@pytest.mark.process
@pytest.mark.requirement("C-10-binds-again")
def test_two_servers_with_workers_never_share_a_port(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(CONFIG)
    with serving("--workers", "2", folder=tmp_path) as first:
        until(lambda: "--worker" in command_of_worker(first))
        words = command_of_worker(first)
        taken = words[words.index("--worker") - 1]
        with serving("--workers", "2", "--port", taken, folder=tmp_path) as second:
            assert "cannot listen on 127.0.0.1" in second.wait_for("cannot listen")
            assert second.end() == 1
