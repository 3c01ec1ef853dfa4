"""Endpoints of providers' routes: methods that return JSON, and Starlette routes of any kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolplug.providers.routes import Endpoint
from toolplug.signatures.values import encode_value, why_not_json


class AnswerNotJson(TypeError):
    """What a route's method returned is neither a response nor JSON; the text says of which type, at which pointer."""


def answering(method: Callable[[Request], Awaitable[object]]) -> Endpoint:
    """Return an endpoint for a method that returns a response or a JSON value, else it raises `AnswerNotJson`."""

    @wraps(method)
    async def endpoint(request: Request) -> Response:
        value = await method(request)
        if isinstance(value, Response):
            return value
        text = encode_value(value)
        if text is None:
            fault = why_not_json(value)
            raise AnswerNotJson(str(fault)) from fault.__cause__
        return Response(text, media_type="application/json")

    return endpoint


def delegating(app: ASGIApp) -> Endpoint:
    """Return an endpoint that passes requests on to a Starlette route of any kind: a function, a class, middleware."""

    async def endpoint(request: Request) -> Response:
        # A response, since an endpoint must return one: it hands the whole exchange over to the other application.
        return _Delegated(app)

    return endpoint


class _Delegated(Response):
    """A response by another application to the same request."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
