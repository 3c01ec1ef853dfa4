"""What can be wrong with the file of a SQLite store, and what its user is told."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from toolplug.errors import StoreConflict, StoreRefused, StoreUnavailable
from toolplug.sqlite.store import SqliteStore
from toolplug.testing.store_fixtures import ManualClock

from .failing_connection import Fuse, burning

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.anyio


async def _filled(file: Path) -> None:
    async with SqliteStore(file) as store:
        for number in range(20):
            await store.commit(f"key {number}", b"x" * 2000, events=[b"event"] * 3)


async def _refused(file: Path, why: str) -> None:
    """Check that the store refuses the file and leaves everything as it is, to the byte."""
    before = {path.name: path.read_bytes() for path in file.parent.iterdir() if path.is_file()}
    for _ in range(2):
        with pytest.raises(StoreRefused, match=why):
            async with SqliteStore(file):
                pass
    after = {path.name: path.read_bytes() for path in file.parent.iterdir() if path.is_file()}
    # The index of a write-ahead log is no data; SQLite makes it anew from the log.
    after.pop(f"{file.name}-shm", None)
    before.pop(f"{file.name}-shm", None)
    assert after == before


@pytest.mark.requirement("H-store-corrupt")
@pytest.mark.parametrize("content", [b"x", b"not a database\n" * 400, b"SQLite format 3\x00", b"\x00" * 8192])
async def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "state.db"
    file.write_bytes(content)
    await _refused(file, "state.db is ")


@pytest.mark.requirement("H-store-corrupt")
@pytest.mark.parametrize("page", [0, 1, 2, 3, 4, 5, 6, 7])
async def test_a_file_with_an_overwritten_page_is_refused_and_left_as_it_is(tmp_path: Path, page: int) -> None:
    file = tmp_path / "state.db"
    await _filled(file)
    content = bytearray(file.read_bytes())
    begin = page * 4096 + (100 if page == 0 else 0)
    content[begin : begin + 512] = b"\xa5" * 512
    file.write_bytes(content)
    await _refused(file, "state.db is corrupt")


@pytest.mark.requirement("H-store-corrupt")
async def test_a_truncated_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    await _filled(file)
    file.write_bytes(file.read_bytes()[: 5 * 4096])
    await _refused(file, "state.db is corrupt")


@pytest.mark.requirement("H-store-newer-schema")
async def test_a_file_of_a_newer_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    await _filled(file)
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    await _refused(file, "newer toolplug")


@pytest.mark.process
@pytest.mark.requirement("H-store-newer-schema")
async def test_a_newer_schema_that_stands_only_in_the_log_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    await _filled(file)
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA user_version = 9'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
    assert file.with_name("state.db-wal").stat().st_size > 0
    await _refused(file, "newer toolplug")


@pytest.mark.requirement("H-store-corrupt")
async def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    await _refused(file, "another program")


async def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    await _filled(tmp_path / "state.db")


@pytest.mark.requirement("H-store-corrupt")
async def test_a_pipe_is_no_store_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.db")
    await _refused(tmp_path / "state.db", "no regular file")


@pytest.mark.requirement("H-store-corrupt")
async def test_damage_that_is_met_later_is_told_as_damage(tmp_path: Path) -> None:
    def blow(sql: str) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    fuse = Fuse(at=0, blow=blow)
    async with SqliteStore(tmp_path / "state.db", connection=burning(fuse)) as store:
        fuse.at = fuse.seen + 1
        with pytest.raises(StoreRefused, match="corrupt"):
            await store.commit("key", b"value")
        fuse.at = fuse.seen + 1
        with pytest.raises(StoreRefused, match="corrupt"):
            await store.read("key")


@pytest.mark.parametrize("name", ["a file/state.db", "a file/below/state.db", "/proc/state.db", "a directory"])
async def test_a_place_that_cannot_hold_the_file_is_unavailable(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").touch()
    (tmp_path / "a directory").mkdir()
    with pytest.raises(StoreUnavailable, match=rf"{Path(name).name} cannot be opened \(\w.+: /.+\); name a place"):
        async with SqliteStore(tmp_path / name):
            pass


@pytest.mark.slow
@pytest.mark.requirement("H-store-busy")
async def test_a_change_waits_for_a_lock_and_then_is_unavailable(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    async with SqliteStore(file) as store:
        revision = await store.commit("key", b"before")
        holder = sqlite3.connect(file, isolation_level=None)
        try:
            holder.execute("BEGIN IMMEDIATE")
            answers = await asyncio.gather(
                *(store.commit("key", b"during") for _ in range(5)),
                store.extend("key", events=[b"during"], ttl_s=60),
                return_exceptions=True,
            )
            assert all(isinstance(answer, StoreUnavailable) and "locked" in str(answer) for answer in answers)
            record = await store.read("key")
        finally:
            holder.close()
        assert record is not None
        assert (record.value, record.revision) == (b"before", revision)
        assert await store.commit("key", b"after") == revision + 1


@pytest.mark.requirement("H-store-busy")
async def test_a_commit_goes_on_when_the_lock_is_given_back(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    holder = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    fuse = Fuse(at=0, blow=lambda sql: holder.close())
    async with SqliteStore(file, connection=burning(fuse)) as store:
        holder.execute("BEGIN IMMEDIATE")
        # Given back when the lock is tried for the second time.
        fuse.at = fuse.seen + 2
        assert await asyncio.gather(*(store.commit("key", b"value", expected=n) for n in range(2))) == [1, 2]


@pytest.mark.requirement("H-store-busy")
async def test_a_start_goes_on_when_the_lock_is_given_back(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    await _filled(file)
    holder = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    # A try that meets the lock ends within three statements; the check is one, so this is at least the second.
    fuse = Fuse(at=5, blow=lambda sql: holder.close())
    async with SqliteStore(file, connection=burning(fuse)) as store:
        assert len(await store.keys()) == 20


@pytest.mark.slow
@pytest.mark.requirement("H-store-busy")
async def test_a_start_on_a_locked_file_is_unavailable(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    await _filled(file)
    holder = sqlite3.connect(file, isolation_level=None)
    try:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match="locked"):
            async with SqliteStore(file):
                pass
    finally:
        holder.close()
    async with SqliteStore(file) as store:
        assert len(await store.keys()) == 20


@pytest.mark.process
async def test_two_processes_that_begin_at_once_share_a_new_file(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from toolplug.sqlite.store import SqliteStore
async def main():
    async with SqliteStore(Path(sys.argv[1])) as store:
        for _ in range(20):
            await store.commit("key", b"", events=[b""])
asyncio.run(main())
"""
    file = tmp_path / "made" / "state.db"
    children = [subprocess.Popen([sys.executable, "-c", code, str(file)]) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    async with SqliteStore(file) as store:
        record = await store.read("key")
        assert record is not None
        assert record.revision == 60


@pytest.mark.process
@pytest.mark.requirement("H-store-disk-full")
async def test_a_full_disk_is_unavailable_and_said_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.stores.full_disk_child", str(tmp_path / "state.db")],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    file = tmp_path / "state.db"
    assert child.stderr.splitlines() == [
        f"changes cannot be kept: {file}: disk I/O error",  # a file that may not grow is not told from a bad disk
        f"{file} can be written again",
    ]
    told = json.loads(child.stdout)
    assert told["failed"] == ["StoreUnavailable"] * 3
    assert told["read while full"] == told["acknowledged while full"] > 0
    assert told["acknowledged after"] == told["acknowledged while full"] + 1
    async with SqliteStore(file) as store:
        record = await store.read("key")
        assert record is not None
        assert record.revision == told["acknowledged after"]


async def test_an_expired_record_leaves_the_file_with_its_events(tmp_path: Path) -> None:
    clock = ManualClock()
    async with SqliteStore(tmp_path / "state.db", clock=clock) as store:
        for number in range(100):
            await store.commit(f"key {number}", b"value", ttl_s=1, events=[b"event"])
        await asyncio.gather(store.commit("brief", b"", events=[b"event"]), store.commit("brief", None))
        clock.now += 2
        for _ in range(2):
            await store.commit("another", b"")
    connection = sqlite3.connect(tmp_path / "state.db")
    try:
        assert connection.execute("SELECT key FROM records").fetchall() == [("another",)]
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
    finally:
        connection.close()


async def test_a_log_in_the_file_is_bounded(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "state.db", kept_events=3) as store:
        for number in range(10):
            await store.commit("key", b"", events=[str(number).encode()] * 2)
    connection = sqlite3.connect(tmp_path / "state.db")
    try:
        kept = connection.execute("SELECT data FROM events ORDER BY id").fetchall()
    finally:
        connection.close()
    assert kept == [(b"8",), (b"9",), (b"9",)]


async def test_a_hung_disk_holds_up_neither_the_loop_nor_the_end_of_the_process(tmp_path: Path) -> None:
    hung, go_on = threading.Event(), threading.Event()

    def hang(sql: str) -> None:
        hung.set()
        go_on.wait()

    fuse = Fuse(at=0, blow=hang)
    before = set(threading.enumerate())
    async with SqliteStore(tmp_path / "state.db", connection=burning(fuse)) as store:
        await store.commit("key", b"before")
        fuse.at = fuse.seen + 1
        committing = asyncio.create_task(store.commit("key", b"hanging"))
        while not hung.is_set():
            await asyncio.sleep(0)
        record = await store.read("key")
        assert all(thread.daemon for thread in set(threading.enumerate()) - before)
        go_on.set()
        assert await committing == 2
    assert record is not None
    assert record.value == b"before"


async def test_closing_finishes_the_commits_that_were_begun(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state.db")
    async with store:
        committing = [asyncio.create_task(store.commit(f"key {n}", b"", expected=n % 2)) for n in range(600)]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*committing, return_exceptions=True)
    assert sum(isinstance(answer, StoreConflict) for answer in answers) == 300
    async with store:
        assert len(await store.keys()) == 300


async def test_a_cancelled_close_fails_the_commits_that_wait(tmp_path: Path) -> None:
    hung, go_on = threading.Event(), threading.Event()

    def hang(sql: str) -> None:
        hung.set()
        go_on.wait()

    fuse = Fuse(at=0, blow=hang)
    store = SqliteStore(tmp_path / "state.db", connection=burning(fuse))
    before = set(threading.enumerate())
    await store.__aenter__()
    fuse.at = fuse.seen + 1
    committing = asyncio.create_task(store.commit("key", b"hanging"))
    while not hung.is_set():
        await asyncio.sleep(0)
    waiting = asyncio.create_task(store.commit("key", b"waiting"))
    closing = asyncio.create_task(store.aclose())
    for _ in range(3):
        await asyncio.sleep(0)
    closing.cancel()
    answers = await asyncio.gather(committing, waiting, closing, return_exceptions=True)
    go_on.set()
    assert [type(answer) for answer in answers] == [StoreUnavailable, StoreUnavailable, asyncio.CancelledError]
    for thread in set(threading.enumerate()) - before:
        thread.join()
    # Nobody was told that it is there; being on its way to the disk, it is there as a whole.
    async with store:
        record = await store.read("key")
    assert record is not None
    assert (record.value, record.revision) == (b"hanging", 1)


@pytest.mark.requirement("H-store-503", "H-store-sigkill")
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_taken_away_while_it_is_open_acknowledges_nothing_more(
    tmp_path: Path, replaced: bool
) -> None:
    file, aside = tmp_path / "state.db", tmp_path / "aside.db"
    async with SqliteStore(file) as store:
        await store.commit("kept", b"1")
        file.rename(aside)
        if replaced:
            file.write_bytes(b"")
        with pytest.raises(StoreUnavailable, match=r"state\.db: deleted or replaced while it was open; put it back"):
            await store.commit("lost", b"1")
        aside.rename(file)
        await store.commit("kept too", b"1")
    async with SqliteStore(file) as store:
        assert await store.keys() == ["kept", "kept too"]
