"""An MCP server over HTTP that says whose request it is, and what it has been sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

from mcp.server.mcpserver import Context, MCPServer
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.http.served import serving_apart
from tests.mcp.client.good import HandshakeOnly


class Sent(NamedTuple):
    """One request: its method of the protocol, empty for none, and the two headers that a test looks at."""

    method: str
    authorization: str | None
    key: str | None


class WhoServer:
    """The server; `sent` is every request. `refused` tokens get `refusal`, and all without a token if `closed`."""

    def __init__(self, *, handshake: bool = False, closed: bool = False) -> None:
        app = _made().streamable_http_app()
        self._app: ASGIApp = HandshakeOnly(app) if handshake else app
        self._closed = closed
        self.sent: list[Sent] = []
        self.refused: set[str] = set()
        self.refusal = 401

    def of(self, method: str) -> list[str | None]:
        """The authorization of each request of a method, in order."""
        return [each.authorization for each in self.sent if each.method == method]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        method = str(json.loads(body).get("method", "")) if body else ""
        authorization = request.headers.get("authorization")
        self.sent.append(Sent(method, authorization, request.headers.get("x-key")))
        if authorization in self.refused or (self._closed and authorization is None):
            await Response(status_code=self.refusal)(scope, receive, send)
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, again, send)


def _made() -> MCPServer:
    server = MCPServer("who")

    @server.tool()
    async def whoami(context: Context) -> str:
        """Say whose token it is."""
        return cast("Request", context.request_context.request).headers.get("authorization", "nobody")

    @server.prompt()
    def greet() -> str:
        """Greet."""
        return "Hello."

    return server


@contextmanager
def serving_who(server: WhoServer) -> Iterator[str]:
    """Serve on a free port; gives the URL of its endpoint."""
    with serving_apart(server) as port:
        yield f"http://127.0.0.1:{port}/mcp"
