"""The writing thread: many entries in one commit, none lost at the close, none for another one's fault."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from toolplug_journal.database import Database, Retention
from toolplug_journal.entry import Entry
from toolplug_journal.measures import Measures
from toolplug_journal.writer import Writer

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0


def entry(number: int) -> Entry:
    return Entry(uid=str(number), began_at=NOW, tenant="t", subject="ann", tool="hello", call_id=str(number))


class Harness:
    """A writer, and another writer's lock that holds it up until `release`."""

    def __init__(self, folder: Path) -> None:
        self.database = Database(folder / "journal.db", Retention(keep_s=100.0, max_rows=100))
        self.database.prepare(NOW)
        self.measures = Measures()
        log = logging.getLogger("toolplug.providers.journal")
        self.writer = Writer(self.database, self.database.connect(), self.measures, lambda: NOW, log)
        self._other = self.database.connect()
        self._other.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        with closing(self._other):
            self._other.execute("ROLLBACK")

    def kept(self) -> list[str]:
        return [item.call_id for item in self.database.after("t", 0, 100, NOW)]

    def counted(self) -> dict[str, float]:
        (family,) = self.measures.collectors()[0].collect()
        return {item.labels["outcome"]: item.value for item in family.samples if item.name.endswith("_total")}


async def test_one_entry_that_cannot_be_written_costs_no_other_of_its_batch_its_place(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    odd = entry(2)._replace(subject="\ud800")
    writes = [asyncio.create_task(harness.writer.write(item)) for item in (entry(0), entry(1), odd, entry(3))]
    await asyncio.sleep(0)
    harness.release()
    await asyncio.gather(*writes)
    await asyncio.to_thread(harness.writer.close)
    assert (harness.kept(), harness.counted()) == (["0", "1", "3"], {"kept": 3, "failed": 1})


async def test_what_waits_at_the_close_is_written_before_it_returns(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    writes = [asyncio.create_task(harness.writer.write(entry(number))) for number in range(600)]
    await asyncio.sleep(0)
    close = asyncio.create_task(asyncio.to_thread(harness.writer.close))
    await asyncio.sleep(0)
    harness.release()
    await close
    assert harness.kept() == [str(number) for number in range(500, 600)]
    await asyncio.gather(*writes)


@pytest.mark.slow
async def test_a_call_does_not_wait_longer_than_its_second_for_a_journal_that_is_held_up(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    await harness.writer.write(entry(1))
    assert harness.kept() == []
    harness.release()
    await asyncio.to_thread(harness.writer.close)
    assert harness.kept() == ["1"]


async def test_a_file_that_is_gone_after_the_close_is_counted_and_raises_nothing(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.release()
    await asyncio.to_thread(harness.writer.close)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
        connection.execute("DROP TABLE calls")
    await harness.writer.write(entry(1))
    assert harness.counted() == {"failed": 1}
