"""The response to one request of the protocol: its reply alone, or a stream that ends with it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine

from starlette.responses import Response

from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.event_stream import ServedEventStream
from toolplug.net.sse import frame
from toolplug.parts.mcp.serving.server_endpoint import Reply

SILENT_S = 15.0
"""Seconds without an event after which a comment is sent, so that proxies keep the connection."""
RECHECK_S = 60.0
"""Seconds between two checks of the credential of a stream without end."""

_COMMENT = b": \n\n"

Still = Callable[[], Awaitable[bool]]
"""Returns whether the client that opened the stream would still be admitted."""


class McpResponseSender:
    """The one writer of a stream while a request is answered.

    The stream starts with the first notification, or the first silence, and only where the client accepts one
    (`streams`). One that has no end of its own is checked from time to time, by `still`.
    """

    def __init__(self, stream: ServedEventStream, *, streams: bool, still: Still | None = None) -> None:
        self._stream = stream
        self._streams = streams
        self._still = still
        self._loop = asyncio.get_running_loop()
        self._check_at = self._loop.time() + RECHECK_S
        self._wake = asyncio.Event()
        self._notices: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._work: asyncio.Task[Reply | None] | None = None
        self._cancelled = False

    async def notify(self, message: bytes) -> None:
        """Send a notification, and return when it has been written; drop it if the client accepts no stream."""
        if self._streams:
            sent: asyncio.Future[None] = self._loop.create_future()
            self._notices.append((message, sent))
            self._wake.set()
            await sent

    def cancel(self) -> None:
        """Cancel the request's work; it gets no reply."""
        self._cancelled = True
        if self._work is not None:
            self._work.cancel()

    async def reply(self, work: Coroutine[None, None, Reply | None]) -> Reply | None:
        """Do the work and send its notifications while it runs; None where it was cancelled, or has no reply.

        Raises what the work raises.
        """
        if self._cancelled:
            work.close()
            return None
        running = self._work = self._loop.create_task(work, name="toolplug-mcp-request")
        running.add_done_callback(lambda _: self._wake.set())
        try:
            while not running.done():
                if not await self._wait_for_work() and self._streams:
                    await self._stream.send(_COMMENT)
                while self._notices:
                    await self._send_next()
                if self._still is not None and self._loop.time() >= self._check_at:
                    await self._check(self._still)
            return None if self._cancelled and running.cancelled() else running.result()
        finally:
            running.cancel()

    async def end(self, reply: Reply | None) -> Response | None:
        """Send the reply, if there is one, as the last event; where nothing was sent before it, return it instead."""
        if reply is None:
            return None
        if not self._stream.started:
            return OrjsonResponse(reply.body, reply.status)
        await self._stream.send(frame("message", reply.body))
        return None

    async def _wait_for_work(self) -> bool:
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
        await self._stream.send(frame("message", message))
        if not sent.done():
            sent.set_result(None)

    async def _check(self, still: Still) -> None:
        self._check_at = self._loop.time() + RECHECK_S
        if not await still():
            self.cancel()
