"""From what authors write for HTTP to endpoints that always answer with a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolplug.signatures.values import encoded

Endpoint = Callable[[Request], Awaitable[Response]]


def answering(method: Callable[[Request], Awaitable[object]]) -> Endpoint:
    """An endpoint for a method that returns a response or a JSON value; raises `TypeError` for anything else."""

    async def endpoint(request: Request) -> Response:
        value = await method(request)
        if isinstance(value, Response):
            return value
        text = encoded(value)
        if text is None:
            raise TypeError(f"{request.method} {request.url.path} returned {type(value).__name__}, which is not JSON")
        return Response(text, media_type="application/json")

    return endpoint


def delegating(app: ASGIApp) -> Endpoint:
    """An endpoint for a Starlette route, whatever stands behind it: a function, a class, middleware."""

    async def endpoint(request: Request) -> Response:
        return _Delegated(app)

    return endpoint


class _Delegated(Response):
    """The response that another application gives to the same request."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
