"""A transport that judges everything that passes through it: no test can look at an object that was not judged."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx2
from tests.responses.judges.published import Unpublished, check_error, check_list, check_response
from tests.responses.judges.stream_laws import StreamLaws


class Judged(httpx2.AsyncBaseTransport):
    """Sends requests over HTTP; every answer of `/responses` is judged while it is read. `streams` are all it saw."""

    def __init__(self) -> None:
        self.streams: list[StreamLaws] = []
        self.judged = 0
        self._over_http = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._over_http.handle_async_request(request)
        if "/responses" not in request.url.path or not isinstance(answer.stream, httpx2.AsyncByteStream):
            return answer
        self.judged += 1
        kind = answer.headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            self.streams.append(StreamLaws())
            answer.stream = _JudgedStream(answer.stream, self.streams[-1])
        elif kind.startswith("application/json"):
            body = await answer.aread()
            _judge(answer.status_code, body)
        elif answer.status_code != 204:
            raise Unpublished(f"{answer.status_code} with {kind!r}")
        return answer

    async def aclose(self) -> None:
        await self._over_http.aclose()


def _judge(status: int, body: bytes) -> None:
    value = json.loads(body)
    if status >= 400:
        check_error(value)
    elif value.get("object") == "list":
        check_list(value)
    elif value.get("object") == "response" and "deleted" not in value:
        check_response(value)
    elif not (value.get("object") == "response" and value["deleted"] is True):
        raise Unpublished(f"no object of the Responses API: {value}")


class _JudgedStream(httpx2.AsyncByteStream):
    """Hands on the bytes of an event stream as they come, and judges each event when its end has come.

    A client may stop at `[DONE]` and read what is left later.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, laws: StreamLaws) -> None:
        self._inner = inner
        self._laws = laws
        self._rest = b""
        self._done = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            *events, self._rest = (self._rest + piece).split(b"\n\n")
            for event in events:
                self._take(event)
            yield piece
        if self._rest or not self._done:
            raise Unpublished(f"the stream ends with {self._rest!r} and not with [DONE]")

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _take(self, event: bytes) -> None:
        if self._done:
            raise Unpublished(f"after [DONE] comes {event!r}")
        fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if not line.startswith(b":"))
        if not fields:
            return
        if fields[b"data"] == b"[DONE]":
            self._laws.end()
            self._done = True
            return
        value = json.loads(fields[b"data"])
        if fields.get(b"event", b"").decode() != value.get("type"):
            raise Unpublished(f"the event is called {fields.get(b'event')!r} and is {value}")
        self._laws.take(value)
