"""A process that dies at any moment of a change leaves record and events, both or neither (law 7)."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from toolplug.errors import StoreUnavailable
from toolplug.sqlite.store import SqliteStore
from toolplug.stores.store import Store

from .crash_child import KEPT, TTL_S, stopped
from .failing_connection import Fuse, burning, fail_as

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.anyio


def _child(file: Path, at: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stores.crash_child", str(file), str(at)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


async def _check(file: Path, acknowledged: int) -> int:
    """Check what the dead process left and return the number of the last commit that is there, -1 for none."""
    async with SqliteStore(file, kept_events=KEPT, clock=stopped) as store:
        await _check_extended(store, file, acknowledged)
        record = await store.read("key")
        if record is None:
            assert acknowledged == -1
            return -1
        number = int(record.value)
        assert number in (acknowledged, acknowledged + 1)
        kept = [event.data for event in (await store.events("key", record.position - 1)).entries]
        log = _log(file, "key")
        assert log == [str(n).encode() for n in range(max(0, number + 1 - KEPT), number + 1)]
        assert kept in ([log[-1]], [])
        assert await store.commit("key", record.value, expected=record.revision) == record.revision + 1
        return number


async def _check_extended(store: SqliteStore, file: Path, acknowledged: int) -> None:
    """Check that time to live and events were extended together, and the value left."""
    log = _log(file, "extended")
    record = await store.read("extended")
    if not log:
        assert acknowledged == -1
        assert record is None or record.expires_at is None
        return
    number = int(log[-1])
    assert number in (acknowledged, acknowledged + 1)
    assert record is not None
    assert (record.value, record.revision, record.expires_at) == (b"value", 1, TTL_S + number)
    assert log == [str(n).encode() for n in range(max(0, number + 1 - KEPT), number + 1)]


def _log(file: Path, key: str) -> list[bytes]:
    connection = sqlite3.connect(file)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [data for (data,) in connection.execute("SELECT data FROM events WHERE key = ? ORDER BY id", [key])]
    finally:
        connection.close()


async def _kill_at_random_moments(file: Path, *, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    there = -1
    for _ in range(rounds):
        with _child(file) as child:
            assert child.stdout is not None
            for _ in range(chance.randrange(1, 60)):
                last = child.stdout.readline()
            child.send_signal(signal.SIGKILL)
            acknowledged = int(([last, *child.stdout.read().splitlines()])[-1])
        assert acknowledged > there
        there = await _check(file, acknowledged)


@pytest.mark.process
@pytest.mark.requirement("LAW-7", "H-store-sigkill", "I2-2a-atomic")
async def test_what_was_acknowledged_survives_sigkill(tmp_path: Path) -> None:
    await _kill_at_random_moments(tmp_path / "state.db", rounds=3, seed=7)


@pytest.mark.judge
@pytest.mark.timeout(1200)
@pytest.mark.requirement("LAW-7", "H-store-sigkill")
async def test_what_was_acknowledged_survives_many_sigkills(tmp_path: Path) -> None:
    await _kill_at_random_moments(tmp_path / "state.db", rounds=60, seed=11)


async def _kill_at_statement(file: Path, at: int) -> bool:
    """Return whether the child came so far."""
    with _child(file, at) as child:
        lines = child.communicate()[0].split()
    if child.returncode == 0:
        return False
    assert child.returncode == -signal.SIGKILL
    await _check(file, int(lines[-1]) if lines else -1)
    return True


@pytest.mark.process
@pytest.mark.requirement("LAW-7", "H-store-sigkill")
@pytest.mark.parametrize("at", [3, 12, 18, 24, 27, 31, 36, 44])
async def test_a_process_killed_before_a_statement_leaves_both_or_neither(tmp_path: Path, at: int) -> None:
    assert await _kill_at_statement(tmp_path / "state.db", at)


@pytest.mark.judge
@pytest.mark.timeout(1200)
@pytest.mark.requirement("LAW-7", "H-store-sigkill")
async def test_a_process_killed_before_any_statement_leaves_both_or_neither(tmp_path: Path) -> None:
    at = 1
    while await _kill_at_statement(tmp_path / f"{at}.db", at):
        at += 1
    assert at > 100


@pytest.mark.requirement("LAW-7", "I2-2a-atomic")
async def test_a_rollback_that_fails_is_made_up_for_before_the_next_change(tmp_path: Path) -> None:
    def blow(sql: str) -> None:
        fuse.at = 0 if sql == "ROLLBACK" else fuse.seen + 1
        fail_as(sqlite3.SQLITE_IOERR)(sql)

    file, fuse = tmp_path / "state.db", Fuse(at=0, blow=blow)
    async with SqliteStore(file, connection=burning(fuse)) as store:
        await store.commit("key", b"before", events=[b"before"])
        # BEGIN, counters, heads, record: the event fails, and so does the ROLLBACK.
        fuse.at = fuse.seen + 5
        with pytest.raises(StoreUnavailable, match="made to fail: ROLLBACK"):
            await store.commit("key", b"lost", events=[b"lost"])
        assert fuse.at == 0
        assert await store.extend("key", events=[b"after"])
        record = await store.read("key")
        assert record is not None
        assert (record.value, record.revision) == (b"before", 1)
        assert _log(file, "key") == [b"before", b"after"]


async def _commit(store: Store, number: int) -> None:
    await store.commit("key", str(number).encode(), events=[b"a", str(number).encode()])


async def _extend(store: Store, number: int) -> None:
    assert await store.extend("key", events=[b"a", str(number).encode()], ttl_s=60)


@pytest.mark.requirement("LAW-7", "H-store-disk-full", "I2-2a-atomic")
@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY])
@pytest.mark.parametrize("change", [_commit, _extend])
async def test_a_statement_that_fails_leaves_all_or_nothing_of_its_change(
    tmp_path: Path, code: int, change: Callable[[Store, int], Awaitable[object]]
) -> None:
    file, fuse = tmp_path / "state.db", Fuse(at=0, blow=fail_as(code))
    async with SqliteStore(file, kept_events=2, connection=burning(fuse)) as store:
        number, failures = 0, 0
        await store.commit("key", b"0", events=[b"0"])
        while True:
            before = (await store.read("key"), _log(file, "key"))
            fuse.seen, fuse.at = 0, failures + 1
            try:
                await change(store, number + 1)
            except StoreUnavailable:
                assert (await store.read("key"), _log(file, "key")) == before
                failures += 1
            else:
                number += 1
                break
            finally:
                fuse.at = 0
            # The next one works.
            number += 1
            await store.commit("key", str(number).encode(), events=[str(number).encode()])
            assert _log(file, "key")[-1] == str(number).encode()
        # BEGIN, counters, heads, record, two events, trim, counters, COMMIT
        assert failures == 9
