"""A process that kills itself in the middle of an ingest: `killed_child.py INDEX MOMENT`.

Reads the files that wait in the index; before each is read and while its passages are written is a moment, and the
moment with this number is the last.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

from toolplug_file_search.documents.preparation import Cutting
from toolplug_file_search.documents.reader import DocumentReader, Prepared
from toolplug_file_search.ingest.background import BackgroundIngest
from toolplug_file_search.storage.database import Database


class Moments:
    """Counts, and kills the process at the last one."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._numbers = count(1)

    def pass_one(self) -> None:
        if next(self._numbers) == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


class DeadlyReader(DocumentReader):
    """Reads documents with moments: before each is read, and in the middle of its passages."""

    def __init__(self, moments: Moments) -> None:
        super().__init__(Cutting(size=1500, overlap=200), logging.getLogger())
        self._moments = moments

    def read(self, name: str, content: bytes) -> Prepared:
        self._moments.pass_one()
        prepared = super().read(name, content)
        parts = list(prepared.parts())

        def deadly() -> Iterator[Mapping[str, Any]]:
            yield from parts[: len(parts) // 2]
            self._moments.pass_one()
            yield from parts[len(parts) // 2 :]

        prepared.parts = deadly
        return prepared


def main(index: str, moment: str) -> None:
    database, idle = Database(Path(index)), Event()
    ingest = BackgroundIngest(
        database, DeadlyReader(Moments(int(moment))), logging.getLogger(), after=lambda _: idle.set()
    )
    ingest.start()
    idle.wait()
    ingest.stop()
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
