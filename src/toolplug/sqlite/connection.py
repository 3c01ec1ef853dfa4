"""One connection to SQLite, on its own thread. Needs aiosqlite (extra `sqlite`)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar, cast

import aiosqlite

# How long a thread may take to end that could not connect.
_END_S = 2.0

Value = str | bytes | int | float | None
Result = TypeVar("Result")


class Connection:
    """A SQLite connection that does its work in the order of the calls.

    Work whose caller is cancelled is still done. Each method may raise `sqlite3.Error`.
    """

    def __init__(self, connection: _DaemonConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, connector: Callable[[], sqlite3.Connection]) -> Self:
        """Call `connector` on the connection's thread. Its errors are raised here, after the thread has ended."""
        # 64 rows a step is aiosqlite's own number; `rows` fetches all at once, so that it has no effect here.
        connection = _DaemonConnection(connector, iter_chunk_size=64)
        try:
            await connection
        except BaseException:
            # Else the thread could still open the file after this has raised, and a test that removes the folder would
            # fail.
            await asyncio.wait([connection.stopped], timeout=_END_S)
            raise
        return cls(connection)

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Call `work` on the connection's thread. One call for several statements saves changes of threads."""
        return await self._connection.run(work)

    async def rows(self, sql: str, parameters: Mapping[str, Value] | Sequence[Value] = ()) -> list[sqlite3.Row]:
        """Run a statement and return all its rows as tuples."""
        return await self.run(lambda connection: connection.execute(sql, parameters).fetchall())

    def close(self) -> asyncio.Future[object]:
        """Finish the queued work, roll back what is not committed, and end the thread, which completes the future."""
        self._connection.stop()
        return self._connection.stopped


class _DaemonConnection(aiosqlite.Connection):
    """An aiosqlite connection on a daemon thread, so that a disk that hangs does not keep the interpreter from ending.

    `stopped` is done when the thread has ended, after `stop`, or after a connection that failed.
    """

    stopped: asyncio.Future[object]

    def __init__(self, connector: Callable[[], sqlite3.Connection], iter_chunk_size: int) -> None:
        super().__init__(connector, iter_chunk_size)
        self._thread.daemon = True

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        return cast("Result", await self._execute(work, self._conn))  # pyright: ignore[reportUnknownMemberType] untyped there

    def stop(self) -> asyncio.Future[object] | None:
        stopped = cast("asyncio.Future[object] | None", super().stop())  # pyright: ignore[reportUnknownMemberType] untyped there
        # Without an event loop, when it is thrown away unclosed, there is no future.
        if stopped is not None:
            self.stopped = stopped
        return stopped
