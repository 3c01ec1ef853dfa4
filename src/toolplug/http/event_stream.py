"""Event streams as Starlette responses.

Starlette's `StreamingResponse` is not used: it takes its chunks from an iterator and sends the status before the first
one, so that a call could no longer be refused; and where the server raises on sending to a closed connection (ASGI 2.4
and later) it does not look for a client that disconnects, which must cancel the work behind a stream that is silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from math import inf

from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from toolplug.http.requests import ClientWatch, HostRequest, key_of

_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Nothing between the host and the client may hold a stream back."""
STUCK_S = 300.0
"""Seconds after which a connection that accepts no data is closed."""


class ServedEventStream:
    """One response's open stream, which starts with its first chunk, or with `start`.

    `hang_up` cancels the work behind it, which also happens where the client accepts no data for `stuck_s`. One that is
    stuck is looked for now and then, which is cheaper than a timer for each chunk.
    """

    __slots__ = ("_hang_up", "_loop", "_response", "_send", "_since", "_stuck_s", "_timer", "started")

    def __init__(
        self, response: Response, send: Send, hang_up: Callable[[], None], *, stuck_s: float = STUCK_S
    ) -> None:
        self._response = response
        self._send = send
        self._hang_up = hang_up
        self._stuck_s = stuck_s
        self._loop = asyncio.get_running_loop()
        self._since = inf
        self._timer: asyncio.TimerHandle | None = None
        self.started: bool = False

    async def start(self) -> None:
        """Send the status and the headers, once."""
        if not self.started:
            self.started = True
            response = self._response
            await self._pass_on(
                {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
            )

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Add headers to those of the response, before `start`."""
        self._response.headers.update(headers)

    async def send(self, chunk: bytes) -> None:
        """Send one chunk, which is a whole number of events."""
        if not self.started:
            await self.start()
        await self._pass_on({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        """End the stream, which tells the client that it is complete."""
        await self.start()
        await self._pass_on({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """Look no longer for a client that is stuck."""
        if self._timer is not None:
            self._timer.cancel()

    async def _pass_on(self, message: Message) -> None:
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._stuck_s, self._look)
        await self._send(message)
        self._since = inf

    def _look(self) -> None:
        self._timer = None
        left = self._since + self._stuck_s - self._loop.time()
        if left <= 0:
            self._hang_up()
        elif left < inf:
            self._timer = self._loop.call_later(left, self._look)


def open_stream(request: HostRequest) -> AbstractContextManager[None]:
    """A scope in which the request counts as an open event stream of its key. Entering raises `QuotaExceeded`."""
    return request.state["host"].quotas.stream(*key_of(request.scope, request.scope["state"]))


Write = Callable[[ServedEventStream], Awaitable[Response | None]]
"""Sends the events. A response that it returns, before anything was sent, is sent in place of the stream."""


class EventStreamResponse(Response):
    """A `text/event-stream` response. `write` is cancelled when the client disconnects, unless `detached`.

    What `write` raises before the first chunk becomes an ordinary error response.
    """

    media_type = "text/event-stream"

    def __init__(self, write: Write, *, detached: bool = False) -> None:
        self.status_code = 200
        self.background: BackgroundTask | None = None
        self._write = write
        self._detached = detached
        # `Response.__init__` would render a body and set a content length.
        self.init_headers(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run `write`, and send what it returns, or the end of the stream."""
        response = None
        with ClientWatch(None if self._detached else receive) as watch:
            stream = ServedEventStream(self, send, watch.hang_up)
            try:
                response = await self._write(stream)
                if response is None:
                    await stream.end()
            finally:
                stream.close()
        if response is not None:
            await response(scope, receive, send)
