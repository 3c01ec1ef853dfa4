"""The URL of a store: which store it names, and what is said where it names none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolplug.errors import StoreMisused
from toolplug.sqlite.store import SqliteStore
from toolplug.stores.memory import MemoryStore
from toolplug.stores.open import open_store


@pytest.mark.requirement("C-2-store-url")
def test_memory_names_the_memory_store() -> None:
    assert isinstance(open_store("memory://"), MemoryStore)


@pytest.mark.anyio
@pytest.mark.requirement("C-2-store-url")
async def test_a_relative_sqlite_url_begins_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///./.toolplug/state%20here.db"):
        assert (tmp_path / ".toolplug" / "state here.db").is_file()


@pytest.mark.anyio
@pytest.mark.requirement("C-2-store-url")
async def test_an_absolute_sqlite_url_names_the_file(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/made/for/it/state.db"):
        assert (tmp_path / "made" / "for" / "it" / "state.db").is_file()


@pytest.mark.anyio
async def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        async with open_store(f"sqlite:///{tmp_path}/made/state.db") as store:
            await store.commit("key", b"value")
            modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "made").iterdir()}
    finally:
        os.umask(previous)
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


def test_nothing_is_touched_before_the_store_is_entered(tmp_path: Path) -> None:
    assert isinstance(open_store(f"sqlite:///{tmp_path}/not/yet.db"), SqliteStore)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("C-2-store-url")
@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost:6379/0",
        "rediss://user:hunter2@host/0",
        "postgres://host/db",
        "state.db",
        "",
        "SQLITE",
        "file:x",
    ],
)
def test_an_unknown_scheme_is_told_the_known_ones(url: str) -> None:
    with pytest.raises(StoreMisused, match=r"known: memory://, sqlite:///\./state\.db") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.requirement("C-2-store-url")
@pytest.mark.parametrize(
    "url",
    [
        "memory://host",
        "memory:///path",
        "memory://?kept=1",
        "sqlite://",
        "sqlite:///",
        "sqlite://state.db",
        "sqlite:./state.db",
        "sqlite:state.db",
        "sqlite:/state.db",
        "sqlite://host/state.db",
        "sqlite:///./state.db#part",
        "sqlite:///./state.db?synchronous=off",
        "sqlite:///./state.db?synchronous=",
        "sqlite:///./state.db?synchronous=full&synchronous=full",
        "sqlite:///./state.db?mode=ro",
        "sqlite:///./state.db?synchronous",
    ],
)
def test_a_url_that_says_something_else_is_refused(url: str) -> None:
    with pytest.raises(StoreMisused):
        open_store(url)


@pytest.mark.requirement("I2-2a-synchronous")
@pytest.mark.parametrize(("query", "spoken"), [("", 1), ("?synchronous=normal", 1), ("?synchronous=full", 2)])
def test_the_url_says_whether_a_loss_of_power_may_take_the_last_commits(
    tmp_path: Path, query: str, spoken: int
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/state.db{query}")
    assert isinstance(store, SqliteStore)
    connection = store.file.open_for_writing()
    try:
        assert connection.execute("PRAGMA synchronous").fetchone() == (spoken,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        connection.close()
