"""What goes out in answer to one request of the protocol: its answer alone, or a stream that ends with it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine

from starlette.requests import ClientDisconnect

from toolplug.http.exchange import Exchange
from toolplug.mcp.server_endpoint import Reply
from toolplug.sessions.events import frame

SILENT_S = 15.0
"""After so long without a word a stream carries a comment, so that nobody on the way takes it for dead."""
RECHECK_S = 60.0
"""How often the credential of a stream without end is looked at again."""
STUCK_S = 300.0
"""A connection that takes nothing for so long is given up."""

_COMMENT = b": \n\n"

Still = Callable[[], Awaitable[bool]]
"""May whoever opened the stream open it now."""


class Outflow:
    """The one writer of an exchange while a request is answered.

    A stream begins with the first notice, or with the first silence, and only where the client takes one (`streams`).
    One that has no end of its own is asked after, by `still`, as time goes on.
    """

    def __init__(self, exchange: Exchange, *, streams: bool, still: Still | None = None) -> None:
        self._exchange = exchange
        self._streams = streams
        self._still = still
        self._loop = asyncio.get_running_loop()
        self._check_at = self._loop.time() + RECHECK_S
        self._wake = asyncio.Event()
        self._notices: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._work: asyncio.Task[Reply | None] | None = None
        self._called_off = False

    async def notify(self, message: bytes) -> None:
        """Send a notification, and return when it is on its way; dropped where the client takes no stream."""
        if self._streams:
            sent: asyncio.Future[None] = self._loop.create_future()
            self._notices.append((message, sent))
            self._wake.set()
            await sent

    def call_off(self) -> None:
        """Cancel what would have been answered."""
        self._called_off = True
        if self._work is not None:
            self._work.cancel()

    async def reply(self, work: Coroutine[None, None, Reply | None]) -> Reply | None:
        """Do the work and send its notices meanwhile; None where it was called off, or has no answer.

        Raises what the work raises, and `ClientDisconnect` for a connection that takes nothing.
        """
        if self._called_off:
            work.close()
            return None
        running = self._work = self._loop.create_task(work, name="toolplug-mcp-request")
        running.add_done_callback(lambda _: self._wake.set())
        try:
            while not running.done():
                if not await self._woken() and self._streams:
                    await self._send(_COMMENT)
                while self._notices:
                    await self._send_next()
                if self._still is not None and self._loop.time() >= self._check_at:
                    await self._check(self._still)
            return None if self._called_off and running.cancelled() else running.result()
        finally:
            running.cancel()

    async def begin(self) -> None:
        """Begin the stream, where it has not begun."""
        if not self._exchange.started:
            await self._exchange.begin_stream()

    async def end(self, reply: Reply | None) -> None:
        """Send the answer, if there is one, and end."""
        exchange = self._exchange
        if reply is not None and not exchange.started:
            await exchange.answer(reply.status, reply.body)
            return
        if reply is not None:
            await self._send(frame("message", reply.body))
        await self.begin()
        await exchange.end_stream()

    async def _woken(self) -> bool:
        """Wait until there is something to do; False after a silence."""
        try:
            async with asyncio.timeout(SILENT_S):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    async def _send_next(self) -> None:
        message, sent = self._notices.popleft()
        await self._send(frame("message", message))
        if not sent.done():
            sent.set_result(None)

    async def _send(self, chunk: bytes) -> None:
        try:
            async with asyncio.timeout(STUCK_S):
                await self.begin()
                await self._exchange.send_chunk(chunk)
        except TimeoutError:
            raise ClientDisconnect from None

    async def _check(self, still: Still) -> None:
        self._check_at = self._loop.time() + RECHECK_S
        if not await still():
            self.call_off()
