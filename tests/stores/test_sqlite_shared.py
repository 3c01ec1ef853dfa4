"""Processes that share one SQLite file hear of each other's changes, whatever happens to any of them."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from toolplug.sqlite import shared as sqlite_shared
from toolplug.sqlite.shared import LOOK_S, wake_folder
from toolplug.sqlite.store import SqliteStore
from toolplug.stores.store import Change, Missed, Store

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-1-shared")]
ROOT = Path(__file__).parents[2]
PATIENCE_S = 20.0


@asynccontextmanager
async def child(file: Path, *what: str) -> AsyncGenerator[Process]:
    """A process that has the file open; killed at the end of the block."""
    arguments = (sys.executable, "-m", "tests.stores.sharing_child", str(file), *what)
    process = await asyncio.create_subprocess_exec(*arguments, stdout=PIPE, cwd=ROOT)
    try:
        assert await line_of(process) == "open"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return (await process.stdout.readline()).decode().strip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[Store]:
    async with SqliteStore(file, shared=True) as store:
        yield store


async def next_of(watch: AsyncGenerator[Change | Missed]) -> Change | Missed:
    async with asyncio.timeout(PATIENCE_S):
        return await anext(watch)


async def settle() -> None:
    """Wait until every open store of this process has looked twice."""
    await asyncio.sleep(2.5 * LOOK_S)


async def test_a_watch_yields_what_another_store_wrote(file: Path, store: Store) -> None:
    async with SqliteStore(file, shared=True) as other, aclosing(store.watch("k")) as watch:
        assert await next_of(watch) == Missed()
        revision = await other.commit("key", b"value", events=[b"one", b""])
        change = await next_of(watch)
        assert isinstance(change, Change)
        assert change == Change("key", revision, b"value", change.events)
        assert [event.data for event in change.events or ()] == [b"one", b""]
        await other.extend("key", events=[b"two"])
        assert (await store.events("key", change.events[-1].id if change.events else 0)).entries[0].data == b"two"
        extended = await next_of(watch)
        assert isinstance(extended, Change)
        assert (extended.revision, extended.value) == (revision, None)
        await other.commit("key", b"x" * 5000, events=[b"x" * 5000])
        assert await next_of(watch) == Change("key", revision + 1, None, None)
        await other.commit("key", None)
        assert await next_of(watch) == Change("key", 0, None, ())


async def test_nothing_is_reported_as_missed_while_all_receive(file: Path, store: Store) -> None:
    async with SqliteStore(file, shared=True) as other, aclosing(store.watch("")) as watch:
        assert await next_of(watch) == Missed()
        await asyncio.gather(*(each.commit(f"{n}", b"") for n in range(50) for each in (store, other)))
        await settle()
        heard = [await next_of(watch) for _ in range(100)]
        assert sorted(change.key for change in heard if isinstance(change, Change)) == sorted(
            f"{n}" for n in range(50) for _ in range(2)
        )


async def test_a_store_that_is_not_shared_is_heard_too(file: Path, store: Store) -> None:
    async with SqliteStore(file) as command, aclosing(store.watch("")) as watch:
        assert await next_of(watch) == Missed()
        await command.commit("key", b"")
        assert await next_of(watch) == Missed()


async def test_a_change_whose_process_died_before_it_was_sent_is_missed(
    file: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteStore(file, shared=True) as other, aclosing(store.watch("")) as watch:
        assert await next_of(watch) == Missed()
        monkeypatch.setattr(sqlite_shared.ChangeSockets, "announce", lambda *_: None)
        await other.commit("key", b"")
        assert await next_of(watch) == Missed()


async def test_without_sockets_changes_are_noticed_by_looking(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sqlite_shared.ChangeSockets, "open", refused)
    async with SqliteStore(file, shared=True) as one, SqliteStore(file, shared=True) as other:
        assert "changes of other processes are looked for every 5 ms" in caplog.text
        async with aclosing(one.watch("")) as watch:
            assert await next_of(watch) == Missed()
            await other.commit("key", b"")
            async with asyncio.timeout(LOOK_S):
                assert await anext(watch) == Missed()


async def test_a_path_too_long_for_a_socket_works(tmp_path: Path) -> None:
    file = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 5) / "state.db"
    async with SqliteStore(file, shared=True) as one, SqliteStore(file, shared=True) as other:
        async with aclosing(one.watch("")) as watch:
            assert await next_of(watch) == Missed()
            await other.commit("key", b"")
            assert await next_of(watch) == Change("key", 1, b"", ())
        names = {path.name for path in wake_folder(file).iterdir()}
        assert len(names) == 3
    assert {path.name for path in wake_folder(file).iterdir()} == {"lock"}
    assert wake_folder(file).stat().st_mode & 0o777 == 0o700


@pytest.mark.requirement("I17-1-shared-volatile")
async def test_the_first_process_removes_volatile_records(file: Path, store: Store) -> None:
    async with SqliteStore(file, shared=True) as other:
        revision = await other.commit("~call/1", b"", events=[b"event"])
        await other.commit("kept", b"")
        assert await store.read("~call/1") is not None
    await store.aclose()
    async with SqliteStore(file, shared=True) as again:
        assert await again.keys() == ["kept"]
        assert await again.commit("~call/1", b"", expected=0) > revision
        async with SqliteStore(file, shared=True) as second:
            assert await second.keys() == ["kept", "~call/1"]


@pytest.mark.process
async def test_another_process_hears_of_a_burst(file: Path, store: Store) -> None:
    async with child(file, "watch") as other:
        assert await line_of(other) == "missed"
        await asyncio.gather(*(store.commit(f"{number}", b"x" * 500, events=[b"x"]) for number in range(2000)))
        heard: set[str] = set()
        while len(heard) < 2000:
            key = (await line_of(other)).split()[0]
            if key == "missed":
                break  # it fell behind, and reads again
            heard.add(key)


@pytest.mark.process
async def test_a_killed_process_leaves_nothing_behind(file: Path, store: Store) -> None:
    async with child(file, "watch") as other:
        assert len(list(wake_folder(file).iterdir())) == 3
        other.kill()
        await other.wait()
        await store.commit("key", b"")
        assert len(list(wake_folder(file).iterdir())) == 2


@pytest.mark.process
async def test_a_stopped_process_blocks_nobody_and_learns_that_it_missed_changes(file: Path, store: Store) -> None:
    async with child(file, "watch") as other, aclosing(store.watch("")) as watch:
        assert (await next_of(watch), await line_of(other)) == (Missed(), "missed")
        other.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_S):
            for number in range(40):
                await asyncio.gather(*(store.commit(f"{number}/{key}", b"x" * 4000) for key in range(20)))
                assert isinstance(await next_of(watch), Change)
        other.send_signal(signal.SIGCONT)
        while await line_of(other) != "missed":
            pass


@pytest.mark.judge
async def test_processes_that_are_killed_at_any_time_disturb_nobody(file: Path, store: Store) -> None:
    """Writers are killed while they write; whatever they committed was heard, or reported as missed."""
    for turn in range(25):
        async with child(file, "write", f"killed/{turn}", "5000") as writer, aclosing(store.watch("killed/")) as watch:
            last = 0
            assert await next_of(watch) == Missed()
            kill = asyncio.get_running_loop().call_later(0.05 + turn / 200, writer.kill)
            await writer.wait()
            kill.cancel()
            record = await store.read(f"killed/{turn}")
            while record is not None and last < record.revision:
                change = await next_of(watch)
                last = record.revision if isinstance(change, Missed) else change.revision


def test_numbers_are_known_in_any_order() -> None:
    numbers = sqlite_shared.CommitNumbers()
    numbers.restart(10)
    numbers.note([12, 9, 11])
    assert not numbers.overdue(12)
    numbers.note([14])
    assert not numbers.overdue(14)
    numbers.note([13])
    assert not numbers.overdue(15)
    assert numbers.overdue(16)
    assert not numbers.overdue(16)
