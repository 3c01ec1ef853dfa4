"""Connections to an MCP server: one that is kept and reopened, or one for each call, with restarts after a backoff.

call ──▶ open? ──yes──▶ connection.call
          │ no
          ▼
   the one task of a connection's life: enter ─▶ begin ─▶ wait for its end, or ours ─▶ leave
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol, TypeVar

from toolplug.catalog.call import NO_TRACE_CONTEXT, Ask, CallContext, Report, ask_nobody
from toolplug.catalog.text import pluralize
from toolplug.errors import ToolUnavailable
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.limiters import SourceSwitch
from toolplug.parts.mcp.client.connection import (
    NO_HEADERS,
    Connect,
    ConnectionFailed,
    CredentialRefused,
    McpAnswer,
    OnChange,
    OpeningRefused,
    Repetition,
    ServerConnection,
)
from toolplug.parts.mcp.client.server_config import Endpoint, Server
from toolplug.runtime.backoff import pause_after
from toolplug.runtime.tasks import OpeningFailed, OwnedTask

T = TypeVar("T")


class ServerDown(ToolUnavailable):
    """The server cannot be reached, or its connection ended before it answered; the log has the reason."""

    def __init__(self, server: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"its server {server!r} is down", code="server_down", retry_after_s=retry_after_s)


class ConnectionStrategy(Protocol):
    """How requests reach a server: over a shared connection, one per session, or one per request."""

    async def ask(self, request: Callable[[ServerConnection], Awaitable[T]]) -> T:
        """Make a request over an open connection. Raises `ServerDown`, `ServerRefused` and `BadAnswer`."""
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        report: Report | None,
        trace_context: Mapping[str, str] = NO_TRACE_CONTEXT,
        ask: Ask = ask_nobody,
        repetition: Repetition | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> McpAnswer:
        """Run a tool by the server's own name for it. Raises like `ask`; also `InputRequired` and `CannotAsk`."""
        return await self.ask(
            lambda connection: connection.call(name, arguments, report, trace_context, ask, repetition, headers)
        )

    async def aclose(self) -> None:
        """Close it. Running and later calls raise `ServerDown`."""
        ...


_LOG = logging.getLogger("toolplug.mcp")

AskOver = Callable[[ConnectionStrategy, Mapping[str, str]], Awaitable[T]]
"""Makes a request over this connection, with these headers."""


class Callers(Protocol):
    """The callers of a server who act as themselves."""

    async def ask_as(self, context: CallContext, ask: AskOver[T]) -> T:
        """Make a request as this caller. Raises as `SwitchedConnection.ask_as`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SwitchedConnection:
    """A connection that is ended once, by `retire` or by `end`; calls of older plans are refused after that."""

    line: ConnectionStrategy
    switch: SourceSwitch = field(default_factory=SourceSwitch)
    callers: Callers | None = None

    async def ask_as(self, context: CallContext, ask: AskOver[T]) -> T:
        """Make a request over the connection of this caller, with the headers of its own credential if it needs one.

        Raises what `ask` raises, and `ToolUnavailable` for a caller without a credential.
        """
        if self.callers is None:
            return await ask(self.line, NO_HEADERS)
        return await self.callers.ask_as(context, ask)

    def off(self) -> None:
        """Refuse new calls; running ones go on."""
        self.switch.open = False

    async def retire(self, accounting: CallAccounting, drain_s: float) -> None:
        """Close it when the running calls have ended; they are ended after this time."""
        self.off()
        if not await accounting.drain(self.switch, drain_s):
            _LOG.warning("an MCP server is ended with %s still running", pluralize(self.switch.running, "call"))
        await self.line.aclose()

    async def end(self) -> None:
        """Close it now; running calls are answered as unavailable."""
        self.off()
        await self.line.aclose()


class BackgroundCloses:
    """Closes that run in the background, and that `wait` waits for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, ending: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run it in the background. Its errors are logged."""
        task = asyncio.create_task(_run_logged(ending), name="toolplug-mcp-ending")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        """Wait for all of them."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def _run_logged(ending: Coroutine[None, None, None]) -> None:
    try:
        await ending
    except Exception:  # noqa: BLE001  a named boundary: the task has no caller to raise to
        _LOG.exception("what ends in the background has failed")


FIRST_S = 1.0
LONGEST_S = 60.0
STEADY_S = 10.0
"""A connection that lasted so long was a good one: when it ends, the next one may begin at once."""


class Restarts:
    """Backoff: one second after the first failure, doubling to a minute, each reduced by a random part.

    `jitter` returns numbers from 0 to 1.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, jitter: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._failures = 0
        self._until = 0.0

    def pause_s(self) -> float:
        """Return the seconds until the next attempt is allowed; 0 if it is allowed now."""
        return max(self._until - self._clock(), 0.0)

    def record_failure(self) -> float:
        """Record a failed attempt and return the pause that follows, in seconds."""
        self._failures += 1
        pause = pause_after(self._failures, FIRST_S, LONGEST_S) * (1 - self._jitter() / 4)
        self._until = self._clock() + pause
        return pause

    def record_end(self, seconds: float) -> None:
        """Record the end of a connection that was open for so many seconds; a short one counts as a failure."""
        if seconds < STEADY_S:
            self.record_failure()
        else:
            self._failures = 0


CLOSE_S = 6.0
"""A connection promises to end within five seconds."""

Begin = Callable[[ServerConnection], Awaitable[None]]
"""What is done with a connection before the first call goes over it; never raises."""


class PersistentConnection(ConnectionStrategy):
    """A `ConnectionStrategy` that keeps one connection open and reopens it when it is lost.

    After a failed start, or a connection that did not last, calls fail at once for a while (`Restarts`). `on_change` is
    called when the server's list of tools has changed.
    """

    def __init__(
        self,
        server: Server,
        connect: Connect,
        on_change: OnChange,
        *,
        begin: Begin | None = None,
        restarts: Restarts | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._server = server
        self._connect = connect
        self._on_change = on_change
        self._begin = begin
        self._clock = clock
        self._restarts = Restarts(clock) if restarts is None else restarts
        self._connection: ServerConnection | None = None
        self._since = 0.0
        self._opening: OwnedTask[ServerConnection] | None = None
        self._lives: set[OwnedTask[ServerConnection]] = set()
        self._ended = False
        self.was_open: bool = False

    @property
    def connection(self) -> ServerConnection | None:
        """The open connection, None if there is none."""
        connection = self._connection
        return connection if connection is not None and connection.open else None

    async def ask(self, request: Callable[[ServerConnection], Awaitable[T]]) -> T:
        """Make a request, over a new connection if none is open. Raises `ServerDown`, `ServerRefused`, `BadAnswer`."""
        connection = self._connection
        if connection is None or not connection.open:
            connection = await self._get_open()
        try:
            return await request(connection)
        except ConnectionFailed as error:
            raise _failure(self._server, error) from error

    async def aclose(self) -> None:
        """Close the connection within some seconds, whatever the server does."""
        self._ended = True
        self._connection = self._opening = None
        in_time = await asyncio.gather(*(life.end(CLOSE_S) for life in tuple(self._lives)))
        if not all(in_time):
            _LOG.error("the connection to MCP server %r has not ended after %g s", self._server.name.id, CLOSE_S)

    async def _get_open(self) -> ServerConnection:
        """Return the open connection; concurrent callers wait for the same opening."""
        server = self._server.name.id
        if self._ended:
            raise ServerDown(server)
        self._count_lost()
        opening = self._opening
        if opening is None:
            pause = self._restarts.pause_s()
            if pause:
                raise ServerDown(server, retry_after_s=pause)
            opening = self._opening = OwnedTask(self._keep_open, name=f"toolplug-mcp-{server}", on_end=self._over)
            self._lives.add(opening)
        try:
            return await opening.wait_open()
        except OpeningFailed as failed:
            error = failed.__cause__ if isinstance(failed.__cause__, ConnectionFailed) else ConnectionFailed()
            raise _failure(self._server, error, self._restarts.pause_s() or None) from None

    async def ensure_open(self) -> ServerConnection:
        """Return the connection, opened if it is not. Raises `ServerDown`, and `CredentialRefused` of a user."""
        return self.connection or await self._get_open()

    async def _keep_open(self, owned: OwnedTask[ServerConnection]) -> None:
        async with AsyncExitStack() as life:
            async with asyncio.timeout(self._server.discovery_timeout_s):
                connection = await life.enter_async_context(self._connect(self._server.transport, self._on_change))
                if self._begin is not None:
                    await self._begin(connection)
            if owned.ended.is_set():
                return
            self._connection, self._since, self.was_open = connection, self._clock(), True
            self._opening = None
            owned.hand_out(connection)
            await _until_over(connection, owned.ended)
            if self._connection is connection:
                self._count_lost()

    def _over(self, owned: OwnedTask[ServerConnection], error: BaseException | None) -> None:
        """Record a connection that did not open, and log why it did not or why it ended with an error."""
        self._lives.discard(owned)
        opening, server = self._opening is owned, self._server
        # Another user, or this one with another credential, need not wait for it.
        if opening and _is_of_user(server) and isinstance(error, CredentialRefused | OpeningRefused):
            self._opening = None
            if isinstance(error, OpeningRefused):
                _LOG.warning("MCP server %r does not let a user in: %s", server.name.id, error)
            return
        if isinstance(error, TimeoutError):
            reason = f"it was not ready after {server.discovery_timeout_s:g} s"
        elif isinstance(error, ConnectionFailed):
            reason = str(error)
        else:
            reason = f"its connection raised {type(error).__name__}"
        if opening:
            self._opening, pause = None, self._restarts.record_failure()
            if error is not None:
                _LOG.warning("MCP server %r is down, left alone for %.1f s: %s", server.name.id, pause, reason)
        elif error is not None:
            _LOG.warning("MCP server %r ended badly: %s", server.name.id, reason)

    def _count_lost(self) -> None:
        """Record that the connection has ended by itself, which its task notices, or a call that needs another one."""
        if self._connection is not None:
            self._connection = None
            self._restarts.record_end(self._clock() - self._since)
            _LOG.warning("MCP server %r has gone; a call starts it again", self._server.name.id)


def _is_of_user(server: Server) -> bool:
    return isinstance(server.transport, Endpoint) and server.transport.of_user


def _failure(server: Server, error: ConnectionFailed, retry_after_s: float | None = None) -> Exception:
    """Return what a caller of the server gets: `ServerDown`, or the refusal of its own credential."""
    if _is_of_user(server) and isinstance(error, CredentialRefused):
        return error
    if _is_of_user(server) and isinstance(error, OpeningRefused):
        return ToolUnavailable(f"its server {server.name.id!r} does not let this caller in", code="server_down")
    return ServerDown(server.name.id, retry_after_s=retry_after_s)


async def _until_over(connection: ServerConnection, ended: asyncio.Event) -> None:
    """Wait until the server has ended, or `ended` is set."""
    ends: list[asyncio.Task[object]] = [
        asyncio.create_task(connection.wait_closed()),
        asyncio.create_task(ended.wait()),
    ]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


class PerCallConnection(ConnectionStrategy):
    """A `ConnectionStrategy` that starts a server for each call, and ends it after the answer.

    After a failed start, calls fail at once for a while.
    """

    def __init__(self, server: Server, connect: Connect, endings: BackgroundCloses) -> None:
        self._server = server
        self._connect = connect
        self._endings = endings
        self._restarts = Restarts()
        self._links: set[PersistentConnection] = set()
        self._ended = False

    async def ask(self, request: Callable[[ServerConnection], Awaitable[T]]) -> T:
        """Make a request. Raises `ServerDown`, `ServerRefused` and `BadAnswer`."""
        pause = self._restarts.pause_s()
        if pause or self._ended:
            raise ServerDown(self._server.name.id, retry_after_s=pause or None)
        link = PersistentConnection(self._server, self._connect, lambda: None)
        self._links.add(link)
        try:
            return await link.ask(request)
        except ServerDown:
            if not (link.was_open or self._ended):
                self._restarts.record_failure()
            raise
        finally:
            self._links.discard(link)
            self._endings.begin(link.aclose())

    async def aclose(self) -> None:
        """End the servers of running calls."""
        self._ended = True
        await asyncio.gather(*(link.aclose() for link in self._links))
