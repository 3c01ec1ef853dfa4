"""A server over HTTP that is sane but for one thing, which the path names. It speaks the handshake era."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

FRAME = 6 * 1024 * 1024
TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}, {"name": "other", "inputSchema": {"type": "object"}}]

Message = dict[str, object]
Odd = Callable[["HostileHttp", Request, Message], Awaitable[Response]]


def result(message: Message, value: object) -> Message:
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


def text(words: str) -> Message:
    return {"content": [{"type": "text", "text": words}]}


def refusal(message: Message, code: int, words: str) -> Message:
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": words}}


def sane(message: Message) -> Message:
    match message["method"]:
        case "initialize":
            info = {"name": "hostile", "version": "1"}
            return result(message, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
        case "tools/list":
            return result(message, {"tools": TOOLS})
        case "tools/call":
            return result(message, text(json.dumps(message["params"]["arguments"])))  # pyright: ignore
        case method:
            return refusal(message, -32601, f"no method {method}")


def events(*parts: bytes, rest: AsyncIterator[bytes] | None = None) -> Response:
    async def stream() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
        if rest is not None:
            async for part in rest:
                yield part

    return StreamingResponse(stream(), media_type="text/event-stream")


def event(message: Message) -> bytes:
    return f"event: message\ndata: {json.dumps(message)}\n\n".encode()


async def for_ever(part: bytes) -> AsyncIterator[bytes]:
    while True:
        yield part
        await asyncio.sleep(0)  # nobody waits for a reader that has gone


def json_of(size: int) -> Odd:
    async def answer(server: HostileHttp, request: Request, message: Message) -> Response:
        head = json.dumps(result(message, text("")))
        return Response(
            head.replace('"text": ""', f'"text": "{"x" * (size - len(head))}"'), media_type="application/json"
        )

    return answer


class HostileHttp:
    """The application. `seen` is every request, as its method and what it asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        message: Message = json.loads(body) if request.method == "POST" and body[:1] == b"{" else {}
        self.seen.append((request.method, str(message.get("method", request.url.path))))
        self.headers.append(dict(request.headers))
        response = await self._response(request, message)
        await response(scope, receive, send)

    async def _response(self, request: Request, message: Message) -> Response:
        mode = request.path_params.get("mode", request.url.path.removeprefix("/").replace("-", " "))
        if request.method == "GET":
            return Response(status_code=405)
        if "id" not in message:
            return await self._notified(mode, message.get("method"))
        odd = ALWAYS.get(mode) or (AT_CALL.get(mode) if message["method"] == "tools/call" else None)
        return JSONResponse(sane(message)) if odd is None else await odd(self, request, message)

    async def _notified(self, mode: str, method: object) -> Response:
        if mode == "no cancellations" and method == "notifications/cancelled":
            await self.gone.wait()
        return Response(status_code=202)


async def elsewhere(server: HostileHttp, request: Request, message: Message) -> Response:
    return RedirectResponse("http://localhost:1/secret?token=1", 307)


async def aside(server: HostileHttp, request: Request, message: Message) -> Response:
    return RedirectResponse("/sane", 308)


async def bomb(server: HostileHttp, request: Request, message: Message) -> Response:
    body = gzip.compress(json.dumps(result(message, text("x" * 20_000_000))).encode())
    return Response(body, media_type="application/json", headers={"content-encoding": "gzip"})


async def endless_json(server: HostileHttp, request: Request, message: Message) -> Response:
    return StreamingResponse(for_ever(b" " * 65536), media_type="application/json")


async def endless_event(server: HostileHttp, request: Request, message: Message) -> Response:
    return events(b"data: ", rest=for_ever(b"x" * 65536))


async def endless_garbage(server: HostileHttp, request: Request, message: Message) -> Response:
    return events(rest=for_ever(b"data: [1]\n\n" * 500))


async def unreadable_answer(server: HostileHttp, request: Request, message: Message) -> Response:
    """An answer that is cut short, on a stream that stays open."""
    return events(b'data: {"jsonrpc": "2.0", "id": 1, "result": {\n\n', rest=for_ever(b": still here\n\n"))


async def some_garbage(server: HostileHttp, request: Request, message: Message) -> Response:
    foreign = event(result({"id": 987}, text("whose?"))).replace(b"event: message", b"event: surprise")
    return events(
        b": hello\n\ndata: {\n\n", foreign, b"retry: 0\ndata: \xff\n\n", event(sane(message)), event(sane(message))
    )


async def odd_news(server: HostileHttp, request: Request, message: Message) -> Response:
    odd = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": None, "progress": 1}}
    return events(*[event(odd)] * 1100, event(sane(message)))


async def marked(server: HostileHttp, request: Request, message: Message) -> Response:
    return Response(b"\xef\xbb\xbf" + json.dumps(sane(message)).encode(), media_type="application/json")


async def breaks_off(server: HostileHttp, request: Request, message: Message) -> Response:
    return events(b"data: {")


async def other_id(server: HostileHttp, request: Request, message: Message) -> Response:
    return JSONResponse(sane(message | {"id": 1}))


async def no_answer(server: HostileHttp, request: Request, message: Message) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "method": "notifications/message"})


async def no_json(server: HostileHttp, request: Request, message: Message) -> Response:
    return Response(b"<html>\xff", media_type="application/json")


async def a_page(server: HostileHttp, request: Request, message: Message) -> Response:
    return Response("<html>", media_type="text/html")


async def accepted(server: HostileHttp, request: Request, message: Message) -> Response:
    return Response(status_code=202)


async def mute(server: HostileHttp, request: Request, message: Message) -> Response:
    await server.gone.wait()
    return Response(status_code=503)


async def progress(server: HostileHttp, request: Request, message: Message) -> Response:
    token = message["params"]["_meta"]["progressToken"]  # pyright: ignore
    told: Message = {"progressToken": token, "progress": 1, "message": "half"}
    return events(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}), event(sane(message)))


def status(code: int) -> Odd:
    async def answer(server: HostileHttp, request: Request, message: Message) -> Response:
        return Response("no s3cret-value here", status_code=code, media_type="text/plain")

    return answer


async def refuses(server: HostileHttp, request: Request, message: Message) -> Response:
    return JSONResponse(refusal(message, -32602, "no way"), status_code=400)


async def with_session(server: HostileHttp, request: Request, message: Message) -> Response:
    if message["method"] == "tools/call":
        return Response(status_code=404)
    return JSONResponse(sane(message), headers={"mcp-session-id": "one"})


ALWAYS: dict[str, Odd] = {
    "elsewhere": elsewhere,
    "aside": aside,
    "401": status(401),
    "503": status(503),
    "500": status(500),
    "forgets": with_session,
}
AT_CALL: dict[str, Odd] = {
    "elsewhere at call": elsewhere,
    "a bomb": bomb,
    "endless json": endless_json,
    "an endless event": endless_event,
    "endless garbage": endless_garbage,
    "an unreadable answer": unreadable_answer,
    "some garbage": some_garbage,
    "odd news": odd_news,
    "a byte order mark": marked,
    "breaks off": breaks_off,
    "another id": other_id,
    "no answer": no_answer,
    "no json": no_json,
    "a page": a_page,
    "accepted": accepted,
    "mute": mute,
    "no cancellations": mute,
    "progress": progress,
    "401 at call": status(401),
    "503 at call": status(503),
    "429 at call": status(429),
    "refuses": refuses,
    "a full frame": json_of(FRAME),
    "more than a frame": json_of(FRAME + 1),
}
