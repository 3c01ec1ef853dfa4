"""Connections to the server: each runs one statement at a time, and is opened again after it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import asyncpg

from toolplug.errors import StoreError, StoreUnavailable
from toolplug.runtime import LoopTimeout
from toolplug_postgres.server import DRIVER_ERRORS, PATIENCE_S, ConnectionLost, Server

# A server that cannot be reached is not asked more often, whatever the load.
_PAUSE_S = 0.1
# Classes of SQLSTATE after which the connection is of no more use: connection errors, shutdown, and a server that has
# become read-only, which is then no longer the primary one.
_ENDS = ("08", "57P", "25006")

RACES = (
    asyncpg.UniqueViolationError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
"""Errors of a statement that met one of another process: it has changed nothing, and may run again."""

Rows = Sequence[asyncpg.Record]
T = TypeVar("T")


class ServerConnection:
    """A connection of one task. A statement that is cancelled, or gets no answer, ends the connection.

    So no answer is left in it for the next statement.
    """

    def __init__(self, server: Server, *, synchronous_commit: str | None = None) -> None:
        self._server = server
        self._synchronous_commit = synchronous_commit
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._refused: StoreError | None = None
        self._refused_until = 0.0

    async def fetch(self, statement: str, *arguments: object, more_s: float = 0.0) -> Rows:
        """Run a statement, in its own transaction, and return its rows. Raises `StoreError`, and `RACES` as they are.

        `more_s`: how much longer than `PATIENCE_S` it may take, for its size.
        """
        connection = await self.connect()
        try:
            async with LoopTimeout(PATIENCE_S + more_s):
                return await connection.fetch(statement, *arguments)
        except RACES:
            raise
        except DRIVER_ERRORS as error:
            code: str = getattr(error, "sqlstate", None) or ""
            if isinstance(error, asyncpg.PostgresError) and not code.startswith(_ENDS):
                raise self._server.error(error) from None
            self.drop()
            told = self._server.error(error)
            if isinstance(error, TimeoutError) or code == "25006":
                raise told from None
            raise ConnectionLost(f"{told} (the connection was lost)") from None
        except BaseException:
            self.drop()
            raise

    async def fetch_again(self, statement: str, *arguments: object) -> Rows:
        """Run a statement that changes nothing: once more if the connection turns out to be lost."""
        try:
            return await self.fetch(statement, *arguments)
        except ConnectionLost:
            return await self.fetch(statement, *arguments)

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """Return the connection; open it if there is none. Raises `StoreError`, at once if it could not just now."""
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        now = asyncio.get_running_loop().time()
        if self._refused is not None and now < self._refused_until:
            raise type(self._refused)(str(self._refused))
        try:
            self._connection = await self._server.connect(synchronous_commit=self._synchronous_commit)
        except StoreError as error:
            self._refused = error
            self._refused_until = asyncio.get_running_loop().time() + _PAUSE_S
            raise
        return self._connection

    def drop(self) -> None:
        """End the connection without a word to the server, which may not listen."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def aclose(self) -> None:
        """Take leave of the server, and end the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=0.5)
            except DRIVER_ERRORS:
                connection.terminate()


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    statement: str
    arguments: tuple[object, ...]
    answer: asyncio.Future[Rows]


class Reader:
    """Runs statements that change nothing which anybody may miss, each on the connection that is free first."""

    def __init__(self, server: Server, *, connections: int) -> None:
        self._server = server
        self._links = [ServerConnection(server) for _ in range(connections)]
        self._asked: asyncio.Queue[_Asked] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._run(link), name="toolplug-postgres-reader") for link in self._links]

    async def fetch(self, statement: str, *arguments: object) -> Rows:
        """Return the rows of a statement, within two seconds. Raises `StoreError`."""
        asked = _Asked(statement, arguments, asyncio.get_running_loop().create_future())
        self._asked.put_nowait(asked)
        return await wait_for_answer(asked.answer, self._server)

    async def aclose(self) -> None:
        """End all connections; what is under way fails."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        while not self._asked.empty():
            fail(self._asked.get_nowait().answer, StoreUnavailable(f"{self._server.place} is not open"))
        for link in self._links:
            await link.aclose()

    async def _run(self, link: ServerConnection) -> None:
        while True:
            asked = await self._asked.get()
            # The caller may have been cancelled while it waited. Later it is not: its answer is then dropped here.
            if asked.answer.done():
                continue
            try:
                rows = await link.fetch_again(asked.statement, *asked.arguments)
            except StoreError as error:
                fail(asked.answer, error)
            except RACES as error:
                fail(asked.answer, self._server.error(error))
            except BaseException:
                fail(asked.answer, StoreUnavailable(f"{self._server.place} is not open"))
                raise
            else:
                if not asked.answer.done():
                    asked.answer.set_result(rows)


async def wait_for_answer(answer: asyncio.Future[T], server: Server, *, more_s: float = 0.0) -> T:
    """Return the result of a future that another task sets. Raises `StoreUnavailable` after two seconds without it."""
    try:
        async with LoopTimeout(PATIENCE_S + more_s):
            return await answer
    except TimeoutError as error:
        raise server.error(error) from None


def fail(answer: asyncio.Future[T], error: StoreError) -> None:
    """Set the error of a future that nobody has answered or cancelled yet."""
    if not answer.done():
        answer.set_exception(error)
