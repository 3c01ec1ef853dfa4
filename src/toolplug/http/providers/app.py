"""The providers' routes alone, for an application that imports the registry and has its own server around it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.authentication import AuthenticationBackend
from starlette.types import ASGIApp, Receive, Scope, Send

from toolplug.http.app import serve_other_protocol
from toolplug.http.auth.chain import ApiKeys, Authentication, Chain, as_auth_function
from toolplug.http.errors import HttpProblem
from toolplug.http.json_body import DEFAULT_MAX_BODY
from toolplug.http.providers.routes import ProviderRoutes
from toolplug.http.request_checks import check_headers
from toolplug.http.requests import SentResponse, initial_state, note_refusal
from toolplug.providers.registry import FunctionRegistry


def provider_routes(
    registry: FunctionRegistry, *, auth: Authentication | Sequence[Authentication], max_body: int = DEFAULT_MAX_BODY
) -> ASGIApp:
    """An ASGI application with every route of the registry's active providers, as they are at each request.

    `auth` authenticates every request and has no default: an `async (connection) -> Principal | None`, a Starlette
    `AuthenticationBackend`, or several of them, called in order. Hosts, origins and `/metrics` are the surrounding
    application's. `max_body`: bytes.
    """
    given = (auth,) if callable(auth) or isinstance(auth, AuthenticationBackend) else auth
    return _ProviderApp(registry, Chain(ApiKeys(()), [as_auth_function(item) for item in given]), max_body)


class _ProviderApp:
    def __init__(self, registry: FunctionRegistry, chain: Chain, max_body: int) -> None:
        self._registry = registry
        self._chain = chain
        self._max_body = max_body
        self._routes = ProviderRoutes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await serve_other_protocol(scope, receive, send)
            return
        state, registry = initial_state(scope), self._registry
        sent = SentResponse(scope, send, state["request_id"])
        try:
            raw = scope["headers"]
            check_headers(raw, dict(raw))
            await self._routes.serve(registry, scope, receive, sent, self._chain, self._max_body)
        except HttpProblem as problem:
            note_refusal(registry.accounting, state, problem, f"{scope['method']} {state['template']}")
            await problem.response(state["request_id"])(scope, receive, sent)
