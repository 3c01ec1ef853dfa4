"""The providers' routes alone, for an application that imports the registry and has its own server around it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.authentication import AuthenticationBackend
from starlette.types import ASGIApp, Receive, Scope, Send

from toolplug.http.app import answer_other_protocol
from toolplug.http.auth.chain import ApiKeys, Authentication, Chain, as_authenticator
from toolplug.http.errors import note_refusal
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import DEFAULT_MAX_BODY
from toolplug.http.problem import HttpProblem, route_not_found
from toolplug.http.providers.routes import ProviderRoutes
from toolplug.http.request_checks import check_headers
from toolplug.providers.registry import FunctionRegistry


def provider_routes(
    registry: FunctionRegistry, *, auth: Authentication | Sequence[Authentication], max_body: int = DEFAULT_MAX_BODY
) -> ASGIApp:
    """An ASGI application with every route of the registry's active providers, as they are at each request.

    `auth` tells who a request comes from, and nobody comes in without it: an `async (connection) -> Principal | None`,
    a Starlette `AuthenticationBackend`, or several of them, asked in order. Hosts, origins and `/metrics` are the
    surrounding application's. `max_body`: bytes.
    """
    given = (auth,) if callable(auth) or isinstance(auth, AuthenticationBackend) else auth
    return _ProviderApp(registry, Chain(ApiKeys(()), [as_authenticator(item) for item in given]), max_body)


class _ProviderApp:
    def __init__(self, registry: FunctionRegistry, chain: Chain, max_body: int) -> None:
        self._registry = registry
        self._chain = chain
        self._max_body = max_body
        self._routes = ProviderRoutes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await answer_other_protocol(scope, receive, send)
            return
        exchange, registry = Exchange(scope, receive, send), self._registry
        try:
            check_headers(scope["headers"], exchange.headers)
            found = self._routes.find(registry, exchange)
            if found is None:
                raise route_not_found()
        except HttpProblem as problem:
            note_refusal(registry.accounting, exchange, problem, f"{exchange.method} {exchange.template}")
            await exchange.refuse(problem)
            return
        await self._routes.serve(registry, found, exchange, self._chain, self._max_body)
