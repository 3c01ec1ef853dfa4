"""The journal's file under several writers at once, as when a command reads while a server runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from toolplug_journal.database import Database, Retention
from toolplug_journal.entry import Entry

NOW = 1_800_000_000.0


def entry(number: int, *, tenant: str = "t1", at: float = NOW) -> Entry:
    return Entry(uid=f"{tenant}-{number}", began_at=at, tenant=tenant, subject="ann", tool="hello", call_id=str(number))


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(tmp_path / "journal.db", Retention(keep_s=100.0, max_rows=3))
    made.prepare(NOW)
    return made


@pytest.fixture
def connections(database: Database) -> Iterator[tuple[sqlite3.Connection, sqlite3.Connection]]:
    with closing(database.connect()) as one, closing(database.connect()) as two:
        yield one, two


def kept(database: Database, tenant: str = "t1", now: float = NOW) -> list[str]:
    return [item.call_id for item in database.after(tenant, 0, 100, now)]


def test_ids_rise_whoever_writes_and_wherever_the_clock_goes(
    database: Database, connections: tuple[sqlite3.Connection, sqlite3.Connection]
) -> None:
    one, two = connections
    database.write(one, [entry(1), entry(2)], NOW)
    database.write(two, [entry(3, at=NOW - 50)], NOW)
    first, second, third = database.after("t1", 0, 100, NOW)
    assert (first.id, second.id, third.id) == (NOW * 1_000_000, NOW * 1_000_000 + 1, NOW * 1_000_000 + 2)
    assert third.ts == NOW - 50


def test_each_tenant_has_its_own_newest_calls_whoever_writes(
    database: Database, connections: tuple[sqlite3.Connection, sqlite3.Connection]
) -> None:
    for number in range(6):
        database.write(connections[number % 2], [entry(number), entry(number, tenant="t2")][: number or None], NOW)
    assert (kept(database), kept(database, "t2")) == (["3", "4", "5"], ["3", "4", "5"])
    assert database.count() == 6


def test_the_end_of_a_call_is_the_same_entry_also_where_its_beginning_was_lost(
    database: Database, connections: tuple[sqlite3.Connection, sqlite3.Connection]
) -> None:
    one, two = connections
    database.write(one, [entry(1)], NOW)
    database.write(two, [entry(1)._replace(status="success", duration_s=0.5), entry(2)._replace(status="panic")], NOW)
    found = [(item.call_id, item.status, item.duration_s) for item in database.after("t1", 0, 100, NOW)]
    assert found == [("1", "success", 0.5), ("2", "panic", None)]
    assert [item.call_id for item in database.newest("t1", None, 1, NOW)] == ["2"]


def test_what_is_too_old_is_not_shown_and_goes_with_the_next_entry(
    database: Database, connections: tuple[sqlite3.Connection, sqlite3.Connection]
) -> None:
    database.write(connections[0], [entry(1)], NOW)
    assert (kept(database, now=NOW + 100), kept(database, now=NOW + 101)) == (["1"], [])
    database.write(connections[0], [entry(2, at=NOW + 101)], NOW + 101)
    assert database.count() == 1


def test_a_batch_is_kept_whole_or_not_at_all(
    database: Database, connections: tuple[sqlite3.Connection, sqlite3.Connection]
) -> None:
    with pytest.raises(UnicodeEncodeError):
        database.write(connections[0], [entry(1), entry(2)._replace(subject="\ud800")], NOW)
    assert kept(database) == []
