"""One request and its answer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from random import getrandbits
from types import MappingProxyType
from urllib.parse import parse_qsl

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from toolplug.catalog.call import ANONYMOUS, Principal
from toolplug.http.problem import Headers, HttpProblem, invalid_request
from toolplug.sessions.session import Session


def has_version(condition: bytes | None, etag: bytes) -> bool:
    """Does the header name this version, weakly compared."""
    if condition is None:
        return False
    named = {item.strip().removeprefix(b"W/") for item in condition.split(b",")}
    return etag in named or b"*" in named


_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def request_id(given: bytes | None) -> str:
    """The client's own `X-Request-Id` where it is one, else a new one: a name and no secret."""
    if given is not None and _ACCEPTED.fullmatch(given):
        return given.decode()
    return f"{getrandbits(64):016x}"


JSON = b"application/json"
CLIENT_GONE = 499
"""Counted for a request whose client left before the first byte of an answer."""

UNKNOWN_PATH = "_unknown"
"""The path in logs and audit lines before a route is found: what a client sends is no name of ours."""

_NO_PARAMS: Mapping[str, str] = MappingProxyType({})
_MAX_QUERY_FIELDS = 32

Readmit = Callable[["Exchange"], Awaitable[None]]
"""Asks again who the request comes from and whether that caller may do this. Raises `HttpProblem`."""


async def _not_let_in(exchange: Exchange) -> None:
    raise RuntimeError("nobody was asked who this request comes from")


class Exchange:
    """A request as the doors, the routes and the metrics see it, and the only way to answer it.

    `path` is the decoded path below the place where the application is mounted. `headers` has lower-case names; the
    doors have seen to it that none that matters stands twice. `template` is the path as declared, and `params` what
    stands in it. `session` is the one whose plugin sent the request, None for every other caller. `standing` are the
    headers of every answer to it. `afterwards` is what a handler leaves to be done when everything that led to it has
    ended: a stream that stays open for hours then holds none of that. `status` is 499 until an answer begins.
    """

    __slots__ = (
        "_send",
        "afterwards",
        "headers",
        "max_body",
        "method",
        "params",
        "path",
        "principal",
        "readmit",
        "receive",
        "request_id",
        "scope",
        "session",
        "standing",
        "started",
        "status",
        "template",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope: Scope = scope
        self.receive: Receive = receive
        self._send = send
        self.method: str = scope["method"]
        self.path: str = path_below_mount(scope)
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.request_id: str = request_id(self.headers.get(b"x-request-id"))
        self.params: Mapping[str, str] = _NO_PARAMS
        self.template: str = UNKNOWN_PATH
        self.standing: list[tuple[bytes, bytes]] = [(b"x-request-id", self.request_id.encode())]
        self.principal: Principal = ANONYMOUS
        self.session: Session | None = None
        self.readmit: Readmit = _not_let_in
        self.afterwards: Callable[[], Awaitable[None]] | None = None
        self.max_body: int = 0
        self.status: int = CLIENT_GONE
        self.started: bool = False

    def header(self, name: bytes) -> str | None:
        """The header's text, or None."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def query(self) -> dict[str, str]:
        """The query's fields. Raises `HttpProblem` for one that stands twice."""
        raw: bytes = self.scope.get("query_string", b"")
        if not raw:
            return {}
        try:
            pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError:
            raise invalid_request(f"the query has more than {_MAX_QUERY_FIELDS} fields") from None
        fields = dict(pairs)
        if len(fields) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise invalid_request(f"the query names {twice!r} twice; give it once", twice)
        return fields

    async def answer(self, status: int, body: bytes, *, content_type: bytes = JSON, headers: Headers = ()) -> None:
        """Send the whole answer; to a HEAD request, without its body."""
        self.status = status
        self.started = True
        raw = [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            *self.standing,
            *headers,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
        await self._send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})

    async def answer_whole(self, response: Response) -> None:
        """Send a response that is all there, as it would send itself, but in fewer steps."""
        self.status = response.status_code
        self.started = True
        raw = [*response.raw_headers, *self.standing]
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": raw})
        await self._send({"type": "http.response.body", "body": response.body})

    async def answer_unchanged(self, headers: Headers) -> None:
        """Say that the client has the newest version."""
        await self._answer_bare(304, headers)

    async def answer_done(self, headers: Headers = ()) -> None:
        """Say that it is done, and that there is nothing to tell."""
        await self._answer_bare(204, headers)

    async def refuse(self, problem: HttpProblem) -> None:
        """Answer with an error, unless an answer has begun: then the server sees it end too early and hangs up."""
        if not self.started:
            await self.answer(problem.status, problem.body(self.request_id), headers=problem.headers)

    async def begin_stream(self, headers: Headers = ()) -> None:
        """Begin an event stream, which proxies must not hold back; `send_chunk` and `end_stream` follow."""
        self.status = 200
        self.started = True
        raw = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
            *self.standing,
            *headers,
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})

    def send_chunk(self, chunk: bytes) -> Awaitable[None]:
        """Send one part of a stream."""
        return self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end_stream(self) -> None:
        """Say that the stream is whole."""
        await self._send({"type": "http.response.body", "body": b""})

    async def send(self, message: Message) -> None:
        """Pass on what a route's own response sends, and note its status."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.started = True
            message["headers"] = [*message.get("headers", ()), *self.standing]
        await self._send(message)

    async def _answer_bare(self, status: int, headers: Headers) -> None:
        self.status = status
        self.started = True
        raw = [*self.standing, *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
        await self._send({"type": "http.response.body", "body": b""})


def path_below_mount(scope: Scope) -> str:
    """The request's path without the prefix under which the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and (len(path) == len(root) or path[len(root)] == "/"):
        return path[len(root) :] or "/"
    return path
