"""A process that kills itself in the middle of an ingest: `killed_child.py INDEX FIRST SECOND MOMENT`.

Puts two files into a new vector store, in one request; the clock is read when the store and each of its files is
written, and the reading with this number is the last.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from toolplug_file_search.database import Database
from toolplug_file_search.ingest import Cutting
from toolplug_file_search.library import Library, Quotas
from toolplug_file_search.records import Caller

CALLER = Caller(tenant="one", subject="one", own_only=False)


def deadly(moment: int) -> Callable[[], float]:
    readings = count(1)

    def clock() -> float:
        if next(readings) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return time.time()

    return clock


def main(index: str, first: str, second: str, moment: str) -> None:
    database = Database(Path(index))
    cutting, quotas = Cutting(size=1500, overlap=200), Quotas(files=10, stores=10)
    Library(database, CALLER, cutting, quotas, deadly(int(moment))).create_store("late", {}, [first, second])
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
