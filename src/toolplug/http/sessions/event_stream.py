"""One open stream on its connection: written as events come, ended where nobody may or can read it any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from toolplug.errors import AccessError, StoreError
from toolplug.http.client_watch import ClientWatch
from toolplug.http.exchange import Exchange
from toolplug.http.problem import HttpProblem
from toolplug.sessions.reader import Reader
from toolplug.sessions.session import Session

RECHECK_S = 60.0
"""How often a stream's credential is looked at again."""
STUCK_CHECKS = 5
"""A connection that takes nothing from one check to the fifth after it is given up."""

_IDLE = -1


class EventStream:
    """Writes what a reader of this session is given.

    Between two events it holds one future, one timer and the watch for a client that hangs up.
    """

    __slots__ = ("_check", "_exchange", "_loop", "_reader", "_sending", "_session", "_timer", "_watch")

    def __init__(self, exchange: Exchange, session: Session, reader: Reader) -> None:
        self._exchange = exchange
        self._session = session
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._watch = ClientWatch(exchange.receive)
        self._sending = _IDLE
        self._check: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(RECHECK_S, self._tick)

    async def written(self) -> None:
        """Write until the reader ends, the client hangs up or takes nothing, or its credential is none any more."""
        exchange, reader = self._exchange, self._reader
        try:
            with self._watch:
                await exchange.begin_stream()
                with suppress(StoreError):  # where it goes on, the client hears when it comes back
                    chunk = await reader.next()
                    while chunk:
                        self._sending = 0
                        await exchange.send_chunk(chunk)
                        self._sending = _IDLE
                        del chunk  # an idle stream keeps nothing of what it has sent
                        chunk = await reader.next()
                await exchange.end_stream()
        finally:
            self._timer.cancel()
            if self._check is not None:
                self._check.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(RECHECK_S, self._tick)
        if self._sending >= STUCK_CHECKS:
            self._watch.hang_up()
            return
        if self._sending != _IDLE:
            self._sending += 1
        if self._check is None or self._check.done():
            self._check = self._loop.create_task(self._checked(), name="toolplug-stream-check")

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

    def _dismiss(self, message: str) -> None:
        self._session.feed.dismiss(self._reader, "auth_expired", message)
