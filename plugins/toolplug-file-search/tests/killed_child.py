"""A process that kills itself in the middle of an ingest: `killed_child.py INDEX MOMENT`.

Reads the files that wait in the index; before each is read and while its passages are written is a moment, and the
moment with this number is the last.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from threading import Event
from typing import overload

from toolplug_file_search.documents.analysis import Analyzer
from toolplug_file_search.documents.reader import DocumentReader
from toolplug_file_search.ingest.background import BackgroundIngest, Indexer
from toolplug_file_search.storage.database import Database
from toolplug_file_search.storage.indexing import Cutting, Passage, Prepared


class Moments:
    """Counts, and kills the process at the last one."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._numbers = count(1)

    def pass_one(self) -> None:
        if next(self._numbers) == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


class DeadlyPassages(Sequence[Passage]):
    """Passages whose middle is a moment."""

    def __init__(self, passages: Sequence[Passage], moments: Moments) -> None:
        self._passages = passages
        self._moments = moments

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Passage]: ...
    def __getitem__(self, index: int | slice) -> Passage | Sequence[Passage]:
        return self._passages[index]

    def __len__(self) -> int:
        return len(self._passages)

    def __iter__(self) -> Iterator[Passage]:
        middle = len(self._passages) // 2
        yield from self._passages[:middle]
        self._moments.pass_one()
        yield from self._passages[middle:]


class DeadlyIndexer(Indexer):
    """Reads documents with moments."""

    def __init__(self, moments: Moments) -> None:
        super().__init__(DocumentReader(), Analyzer(), Cutting(size=1500, overlap=200))
        self._moments = moments

    def prepared(self, name: str, content: bytes) -> Prepared:
        self._moments.pass_one()
        found = super().prepared(name, content)
        return found._replace(passages=DeadlyPassages(found.passages, self._moments))


def main(index: str, moment: str) -> None:
    database, idle = Database(Path(index)), Event()
    ingest = BackgroundIngest(
        database, DeadlyIndexer(Moments(int(moment))), logging.getLogger(), after=lambda _: idle.set()
    )
    ingest.start()
    idle.wait()
    ingest.stop()
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
