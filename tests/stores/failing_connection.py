"""A connection to SQLite that stops at its n-th statement."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Fuse:
    """Counts statements and calls `blow` with the one numbered `at`, before it runs; counts from 1."""

    at: int
    blow: Callable[[str], None]
    seen: int = 0

    def burn(self, sql: str) -> None:
        self.seen += 1
        if self.seen == self.at:
            self.blow(sql)


def fail_as(code: int) -> Callable[[str], None]:
    """Raise what SQLite raises with this code."""

    def blow(sql: str) -> None:
        error = sqlite3.OperationalError(f"made to fail: {sql.split(maxsplit=1)[0]}")
        error.sqlite_errorcode = code
        raise error

    return blow


def kill(sql: str) -> None:
    """End this process as SIGKILL does."""
    os.kill(os.getpid(), signal.SIGKILL)


def burning(fuse: Fuse) -> type[sqlite3.Connection]:
    """Return a class of connections whose statements burn the fuse."""

    class BurningCursor(sqlite3.Cursor):
        def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
            def rows() -> Iterable[Any]:
                for row in parameters:
                    fuse.burn(sql)
                    yield row

            return super().executemany(sql, rows())

    class BurningConnection(sqlite3.Connection):
        def cursor(self, *arguments: Any) -> sqlite3.Cursor:
            return super().cursor(BurningCursor)

        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            fuse.burn(sql)
            return super().execute(sql, *arguments)

        def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
            return self.cursor().executemany(sql, parameters)

    return BurningConnection
