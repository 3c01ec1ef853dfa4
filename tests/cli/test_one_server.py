"""One serving process on a store: a second one waits for the first, and is refused where that stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from tests.cli.conftest import Run
from tests.cli.process import serving

from toolplug import Host, open_host
from toolplug.errors import StoreError, StoreInUse, StoreRefused
from toolplug.sqlite.store import SqliteStore

pytestmark = [pytest.mark.process, pytest.mark.requirement("C-2-store-one-server")]

SHORT = "providers: {hello: {enabled: true, limits: {drain: 500ms}}}\nstore: sqlite:///./state.db"


def test_a_second_server_is_refused_with_the_first_ones_process_id(
    tmp_path: Path, run: Run, write: Callable[..., Path]
) -> None:
    write(SHORT)
    with serving(folder=tmp_path) as first:
        first.wait_for("toolplug listening on ")
        second = run("serve", "--port", "0", "--json")
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


def test_commands_work_beside_a_server(tmp_path: Path, run: Run, write: Callable[..., Path]) -> None:
    write(SHORT)
    with serving(folder=tmp_path) as first:
        first.wait_for("toolplug listening on ")
        for command in (["call", "hello"], ["tools"], ["providers"], ["approvals", "list"], ["check"], ["doctor"]):
            assert run(*command).code == 0, command


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


WORKERS = """
import asyncio, logging, multiprocessing, sys, threading
from toolplug import open_host

async def serve(number, barrier):
    barrier.wait()
    async with open_host({"store": "memory://"}):
        barrier.wait()

def work(number, barrier):
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    asyncio.run(serve(number, barrier))

if __name__ == "__main__":
    count = int(sys.argv[1])
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count)
    workers = [context.Process(target=work, args=(number, barrier)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""


@pytest.mark.parametrize(("count", "warnings"), [(1, 0), (2, 2)])
def test_a_store_in_memory_of_several_workers_is_a_warning(tmp_path: Path, count: int, warnings: int) -> None:
    (tmp_path / "application.py").write_text(WORKERS)
    command = [sys.executable, "application.py", str(count)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("store: memory:// in one of several workers") == warnings


@pytest.fixture(params=["symbolic link", "link to the folder", "relative name"])
def other_name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Another name of the file `state.db`."""
    match request.param:
        case "symbolic link":
            (tmp_path / "link.db").symlink_to("state.db")
            return str(tmp_path / "link.db")
        case "link to the folder":
            (tmp_path / "folder").symlink_to(tmp_path)
            return str(tmp_path / "folder" / "state.db")
        case _:
            return str(tmp_path / "x" / ".." / "state.db")


@pytest.mark.anyio
async def test_a_second_server_is_refused_under_any_name_of_the_file(
    tmp_path: Path, other_name: str, write: Callable[..., Path]
) -> None:
    async with open_host(write("limits: {drain: 0}\nstore: sqlite:///./state.db")):
        with pytest.raises(StoreInUse):
            await _entered(open_host({"store": f"sqlite:///{other_name}", "limits": {"drain": 0}}))
        assert not (tmp_path / "link.db.lock").exists()


@pytest.mark.anyio
async def test_processes_that_share_a_file_hear_of_each_other_under_any_name(tmp_path: Path, other_name: str) -> None:
    (tmp_path / "x").mkdir()
    async with (
        SqliteStore(tmp_path / "state.db", shared=True) as one,
        SqliteStore(Path(other_name), shared=True) as other,
    ):
        await one.commit("key", b"value")
        record = await other.read("key")
        assert record is not None
        assert record.value == b"value"
    assert [path.name for path in tmp_path.glob("*-wake")] == ["state.db-wake"]


@pytest.mark.anyio
async def test_a_file_with_two_names_by_hard_links_is_refused(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "state.db"):
        pass
    (tmp_path / "other.db").hardlink_to(tmp_path / "state.db")
    with pytest.raises(StoreRefused, match=r"other\.db has 2 names by hard links"):
        await SqliteStore(tmp_path / "other.db").__aenter__()
