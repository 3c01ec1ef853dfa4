"""One open stream on its connection: written as events come, ended where nobody may or can read it any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import randrange

from toolplug.errors import AccessError, StoreError
from toolplug.host.host import Host
from toolplug.http.client_watch import ClientWatch
from toolplug.http.exchange import Exchange
from toolplug.http.problem import HttpProblem
from toolplug.http.sessions.handlers import session_of
from toolplug.sessions.session import Session
from toolplug.sessions.shared import HEARTBEAT_S
from toolplug.sessions.stream import Reader

RECHECK_S = 60.0
"""How often a stream's credential is looked at again."""
STUCK_S = 300.0
"""A connection that takes nothing for so long is given up."""

_RECHECK_BEATS = int(RECHECK_S / HEARTBEAT_S)
_STUCK_BEATS = int(STUCK_S / HEARTBEAT_S)


class EventStream:
    """Writes what a reader of this session is given.

    Between two events it holds one future and the watch for a client that hangs up; its reader's beat is its clock.
    """

    __slots__ = ("_beats", "_check", "_exchange", "_reader", "_sending_since", "_session", "_watch")

    def __init__(self, exchange: Exchange, session: Session, reader: Reader) -> None:
        self._exchange = exchange
        self._session = session
        self._reader = reader
        self._watch = ClientWatch(exchange.receive)
        self._beats = randrange(_RECHECK_BEATS)  # not all streams of a session are looked at together
        self._sending_since: int | None = None
        self._check: asyncio.Task[None] | None = None
        reader.on_beat = self._beat

    async def written(self) -> None:
        """Write until the reader ends, the client hangs up or takes nothing, or its credential is none any more."""
        exchange, reader = self._exchange, self._reader
        try:
            with self._watch:
                await exchange.begin_stream()
                with suppress(StoreError):  # where it goes on, the client hears when it comes back
                    while not (reader.idle and reader.closed):
                        if reader.idle:
                            await reader.rung()
                            continue
                        self._sending_since = self._beats
                        await exchange.send_chunk(await reader.next())
                        self._sending_since = None
                await exchange.end_stream()
        finally:
            if self._check is not None:
                self._check.cancel()
            self._session.close_stream(reader)

    def _beat(self) -> None:
        self._beats += 1
        if self._sending_since is not None and self._beats - self._sending_since > _STUCK_BEATS:
            self._watch.hang_up()
        elif self._beats % _RECHECK_BEATS == 0:
            self._check = asyncio.get_running_loop().create_task(self._checked(), name="toolplug-stream-check")

    async def _checked(self) -> None:
        """End the stream where its caller would not be let in now."""
        exchange = self._exchange
        try:
            await exchange.readmit(exchange)
        except HttpProblem as problem:
            self._dismiss(problem.message)
        except (AccessError, StoreError):
            return  # the session is over, which its streams are told, or nobody can tell now
        else:
            if exchange.principal.tenant != self._session.tenant:
                self._dismiss("the credential is of another tenant now")
        finally:
            self._check = None

    def _dismiss(self, message: str) -> None:
        self._session.feed.dismiss(self._reader, "auth_expired", message)


async def session_stream(host: Host, exchange: Exchange) -> None:
    """Stream the events until the session, the client or its credential ends."""
    session = await session_of(host, exchange)
    if exchange.method == "HEAD":
        await exchange.begin_stream()
        await exchange.end_stream()
        return
    role = "client" if exchange.session is None else "plugin"
    reader = await session.open_stream(role, exchange.header(b"last-event-id"))
    exchange.afterwards = EventStream(exchange, session, reader).written
