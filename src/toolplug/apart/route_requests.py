"""A request of a provider's route: forwarded by the host, served by the provider's process; both bodies are streams."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope, Send

from toolplug.apart.frames import CANCEL, PIECE_OF, REQUEST, RESPONSE, FrameRefused, Incoming, Outgoing, Peer
from toolplug.apart.own_site import current_work
from toolplug.apart.values import Head, decode_error, decode_principal, encode_error, encode_principal
from toolplug.catalog.call import Principal, enter_frame
from toolplug.crashes import log_crash
from toolplug.errors import ToolplugError, ToolUnavailable
from toolplug.providers.answering_routes import AnswerNotJson
from toolplug.providers.routes import BoundRoute

_HOP = frozenset((b"authorization", b"x-api-key", b"proxy-authorization", b"cookie"))
"""What authenticates the caller to the host; only a public route, which checks it itself, is sent it."""

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""RFC 9110, section 5."""
_LENGTH = re.compile(r"[0-9]+")
_OF_CONNECTION = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
)
"""What says how the bytes of a connection are read, which is the server's: answers of other requests follow on it."""


class ServedRequest:
    """A request in the provider's process: its endpoint runs as a task."""

    def __init__(self, peer: Peer, number: int, route: BoundRoute, head: Head) -> None:
        self.body: Incoming = Incoming(peer, number)
        self.response: Outgoing = Outgoing(peer, number)
        self._peer = peer
        self._number = number
        self._endpoint = route.endpoint
        self._path = route.path
        self._head = head
        self._done = False
        self._task: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[], object]) -> None:
        """Run the endpoint, and call `ended` when it has ended."""
        self._task = self._peer.loop.create_task(self._run(), name="toolplug-apart-request")
        self._task.add_done_callback(lambda _: ended())

    def cancel(self) -> None:
        """End the endpoint: the client or the provider is gone."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        head = self._head
        principal = decode_principal(head["who"])
        enter_frame(principal.tenant)
        current_work.set((self._number, principal.tenant))
        try:
            request = Request(self._scope(principal), self._receive, self._send)
            response = await self._endpoint(request)
            await response(request.scope, self._receive, self._send)
            end: Mapping[str, object] = {}
        except HTTPException as error:
            end = _end_of(error)
        except AnswerNotJson as error:
            end = {"not_json": str(error)}
        except ClientDisconnect:
            end = {"gone": True}
        except ToolplugError as error:
            end = {"error": encode_error(error)}
        except asyncio.CancelledError:
            end = {"gone": True}
        except BaseException as error:  # noqa: BLE001  a handler of the provider
            log_crash(f"the handler of {head['label']}", error)
            end = {"error": encode_error(error)}
        self._peer.send(RESPONSE, {"id": self._number, "end": end})

    async def _receive(self) -> Message:
        if self._done:
            await asyncio.Event().wait()
        head, body = await self.body.get()
        if head.get("gone"):
            self._done = True
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": head["more"]}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [_text_pair(pair) for pair in message.get("headers", ())]
            # The host would end the process for it: a handler may have put a caller's text into a header.
            _check_head(message["status"], headers)
            self._peer.send(RESPONSE, {"id": self._number, "status": message["status"], "headers": headers})
        elif message["type"] == "http.response.body":
            await self.response.write(bytes(message.get("body", b"")), more=message.get("more_body", False))

    def _scope(self, principal: Principal) -> Scope:
        # A UUID is sent as its text.
        convertors, head = compile_path(self._path)[2], self._head
        params = {name: convertors[name].convert(value) for name, value in head["params"].items()}
        return {**_scope_of(head, principal), "path_params": params}


def _end_of(error: HTTPException) -> Mapping[str, object]:
    headers = dict(error.headers or {})
    try:
        _check_head(error.status_code, [*headers.items()])
    except FrameRefused as wrong:
        return {"error": encode_error(wrong)}
    return {"http": [error.status_code, str(error.detail), headers]}


def _scope_of(head: Head, principal: Principal) -> Scope:
    state = {"tenant": principal.tenant, "principal": principal, "request_id": head["request_id"]}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": head["http_version"],
        "method": head["method"],
        "scheme": head["scheme"],
        "path": head["path"],
        "raw_path": head["raw_path"].encode("latin-1"),
        "root_path": head["root_path"],
        "query_string": head["query"].encode("latin-1"),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"]],
        "client": tuple(head["client"]) if head["client"] else None,
        "server": tuple(head["server"]) if head["server"] else None,
        "state": state,
    }


def _text_pair(pair: tuple[bytes, bytes]) -> list[str]:
    return [bytes(part).decode("latin-1") for part in pair]


def forward_route(
    peer: Callable[[], Any], index: int, label: str, public: bool
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a route whose handler is in another process."""

    async def endpoint(request: Request) -> Response:
        try:
            return ForwardedResponse(peer(), index, label, public)
        except ToolUnavailable as error:
            headers = {"Retry-After": "1"}
            raise HTTPException(503, str(error), headers) from None

    return endpoint


class ForwardedResponse(Response):
    """The response of the provider's process to a request, which is sent to it when the response is."""

    def __init__(self, peer: Any, index: int, label: str, public: bool) -> None:
        super().__init__()
        self._peer = peer
        self._index = index
        self._label = label
        self._public = public
        self.principal: Principal = Principal()
        self.context: Context = copy_context()
        self.number: int = 0
        self.response: Any = None
        self.outgoing: Any = None
        self._events: asyncio.Queue[Head] = asyncio.Queue()
        self._refused: Exception | None = None

    def put(self, head: Head) -> None:
        """Take the head of the response, its end, or the end of the process. Raises `FrameRefused`."""
        if "status" in head:
            _check_head(head["status"], head["headers"])
        elif "http" in head["end"]:
            status, _, headers = head["end"]["http"]
            _check_head(status, [*headers.items()])
        # Two at most: a head and an end. A process that sends more is not listened to.
        if self._events.qsize() < 4:
            self._events.put_nowait(head)
        if "end" in head and self.response is not None:
            self.response.end(_Ended())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the request to the process and its response to the client. Raises what the handler has raised."""
        peer = self._peer
        self.principal = scope["state"].get("principal", self.principal)
        self.context = copy_context()
        self.number = number = peer.open_request(self)
        self.response, self.outgoing = Incoming(peer, number), Outgoing(peer, number)
        peer.send(REQUEST, self._head(scope))
        upload = peer.loop.create_task(self._upload(receive), name="toolplug-apart-upload")
        try:
            await self._download(send)
        finally:
            upload.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await upload
            peer.close_request(number)
            peer.send(CANCEL, {"id": number})

    def _head(self, scope: Scope) -> Head:
        return {
            "id": self.number,
            "route": self._index,
            "label": self._label,
            "who": encode_principal(self.principal),
            "request_id": scope["state"].get("request_id", ""),
            "http_version": scope.get("http_version", "1.1"),
            "method": scope["method"],
            "scheme": scope.get("scheme", "http"),
            "path": scope["path"],
            "raw_path": (scope.get("raw_path") or scope["path"].encode("utf-8")).decode("latin-1"),
            "root_path": scope.get("root_path", ""),
            "query": scope["query_string"].decode("latin-1"),
            "params": {name: _plain(value) for name, value in scope.get("path_params", {}).items()},
            "client": scope.get("client"),
            "server": scope.get("server"),
            "headers": [_text_pair(pair) for pair in scope["headers"] if self._public or pair[0] not in _HOP],
        }

    async def _upload(self, receive: Receive) -> None:
        while True:
            try:
                message = await receive()
            except Exception as error:  # noqa: BLE001  a body over a limit: nobody else waits for this task
                self._refused = error
                self.put({"end": {}})
                return
            if message["type"] == "http.disconnect":
                self._peer.send(PIECE_OF, {"id": self.number, "more": False, "gone": True})
                return
            await self.outgoing.write(message.get("body", b""), more=message.get("more_body", False))

    async def _download(self, send: Send) -> None:
        started = False
        head = await self._events.get()
        if "status" in head:
            started = True
            headers = [
                (name.encode("latin-1"), value.encode("latin-1"))
                for name, value in head["headers"]
                if name.lower() not in _OF_CONNECTION
            ]
            await send({"type": "http.response.start", "status": int(head["status"]), "headers": headers})
            with contextlib.suppress(_Ended):
                while True:
                    piece, body = await self.response.get()
                    await send({"type": "http.response.body", "body": body, "more_body": bool(piece["more"])})
                    if not piece["more"]:
                        return
            head = await self._events.get()
        if self._refused is not None:
            raise self._refused
        _raise_end(head["end"], started)


def _check_head(status: object, headers: Sequence[Any]) -> None:
    """Refuse what a server, which trusts its application, would write as two heads, or as a body of two lengths."""
    if type(status) is not int or not 200 <= status <= 599 or not all(len(pair) == 2 for pair in headers):
        raise FrameRefused("a response that is none")
    if not all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers):
        raise FrameRefused("a response with a header that is none")
    lengths = [value for name, value in headers if name.lower() == "content-length"]
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise FrameRefused("a response of no length")


def _raise_end(end: Head, started: bool) -> None:
    """Raise what the handler has raised."""
    if "http" in end:
        status, detail, headers = end["http"]
        kept = {name: value for name, value in headers.items() if name.lower() not in _OF_CONNECTION}
        raise HTTPException(status, str(detail), kept)
    if "not_json" in end:
        raise AnswerNotJson(str(end["not_json"]))
    if "lost" in end:
        raise HTTPException(503, str(end["lost"]))
    if "error" in end:
        raise decode_error(end["error"])
    if not started:
        raise ClientDisconnect


def _plain(value: object) -> object:
    """Return a parameter of a path as JSON has it: a UUID is sent as its text."""
    return value if isinstance(value, str | int | float) else str(value)


class _Ended(Exception):
    """The handler has ended before its response had."""
