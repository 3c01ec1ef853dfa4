"""One serving process on a store: a second one waits for the first, and is refused where that stays."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from tests.cli.process import serving, toolplug

from toolplug import Host, open_host
from toolplug.errors import StoreError, StoreInUse

pytestmark = [pytest.mark.process, pytest.mark.requirement("C-2-store-one-server")]

SHORT = "providers: {hello: {enabled: true, limits: {drain: 500ms}}}\nstore: sqlite:///./state.db"


def test_a_second_server_is_refused_with_the_first_ones_process_id(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(SHORT)
    with serving(folder=tmp_path) as first:
        first.wait_for("toolplug listening on ")
        second = toolplug("serve", "--port", "0", "--json", folder=tmp_path)
        assert (second.code, second.codes) == (1, ["store_in_use"])
        assert f"is served by process {first.process.pid} on " in second.out
        assert "waiting up to 0.5 s for its end" in second.err
        assert "listening" not in second.err
        assert first.call("hello").json()["output"] == "Hello, world!"


def test_a_second_server_takes_over_when_the_first_ends(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(SHORT.replace("500ms", "20s"))
    with serving(folder=tmp_path) as first:
        first.wait_for("toolplug listening on ")
        with serving(folder=tmp_path) as second:
            second.wait_for(f"is served by process {first.process.pid} on ")
            first.send(signal.SIGTERM)
            assert first.end() == 0
            second.wait_for("toolplug listening on ")
            assert second.call("hello").json()["output"] == "Hello, world!"


def test_a_signal_ends_the_wait(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(SHORT.replace("500ms", "20s"))
    with serving(folder=tmp_path) as first:
        first.wait_for("toolplug listening on ")
        with serving(folder=tmp_path) as second:
            second.wait_for("is served by process")
            second.send(signal.SIGTERM)
            assert second.end() == 0


def test_a_killed_server_leaves_no_lock(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(SHORT.replace("500ms", "0"))
    with serving(folder=tmp_path) as first:
        first.wait_for("toolplug listening on ")
        first.send(signal.SIGKILL)
        first.end()
    with serving(folder=tmp_path) as second:
        second.wait_for("toolplug listening on ")


def test_commands_work_beside_a_server(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(SHORT)
    with serving(folder=tmp_path) as first:
        first.wait_for("toolplug listening on ")
        for command in (["call", "hello"], ["tools"], ["providers"], ["approvals", "list"], ["check"], ["doctor"]):
            assert toolplug(*command, folder=tmp_path).code == 0, command


@pytest.mark.anyio
async def test_a_host_of_an_application_serves_too(tmp_path: Path, write: Callable[..., Path]) -> None:
    file = write(SHORT)
    async with open_host(file):
        with pytest.raises(StoreInUse) as refused:
            await _entered(open_host(file))
        assert refused.value.pid == os.getpid()
        assert isinstance(refused.value, StoreError)
        async with open_host(file, serving=False), open_host(file, sessions=False):
            pass
    async with open_host(file):
        pass


async def _entered(host: Host) -> None:
    async with host:
        pass


FORKS = """
import asyncio, os, sys, time
from toolplug import open_host

async def main():
    async with open_host("providers.yaml"):
        if os.fork() == 0:
            print("forked", flush=True)
            time.sleep(60)
            os._exit(0)
        time.sleep(60)

asyncio.run(main())
"""


def test_a_process_that_the_server_forked_does_not_keep_the_lock(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(SHORT.replace("500ms", "0"))
    with Popen([sys.executable, "-c", FORKS], cwd=tmp_path, stdout=PIPE, text=True, start_new_session=True) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "forked\n"
            first.kill()
            first.wait()
            with serving(folder=tmp_path) as second:
                second.wait_for("toolplug listening on ")
        finally:
            os.killpg(first.pid, signal.SIGKILL)


async def _warns(caplog: pytest.LogCaptureFixture) -> bool:
    caplog.clear()
    async with open_host({"store": "memory://"}):
        return "store: memory:// in a worker process" in caplog.text


@pytest.mark.anyio
async def test_a_store_in_memory_of_a_worker_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert not await _warns(caplog)
    monkeypatch.setenv("SERVER_SOFTWARE", "gunicorn/23.0.0")
    assert await _warns(caplog)
    monkeypatch.delenv("SERVER_SOFTWARE")
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    assert await _warns(caplog)
