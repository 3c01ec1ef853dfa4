"""The ASGI application of a host.

    started? → doors → route → method → caller → scope → handler

A refusal anywhere on the way is an error of one shape; nothing that a route does ends anything but its own request.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from toolplug.catalog.call import Principal
from toolplug.host.host import Host
from toolplug.http.auth.chain import Authentication, Authenticator, as_authenticator, insufficient_scope
from toolplug.http.auth.plugin_tokens import PLUGIN, CallersOnly, plugin_token, session_of_token
from toolplug.http.caller_catalog import enter_tenant, leave_tenant
from toolplug.http.cors import answer_preflight, is_preflight
from toolplug.http.errors import KNOWN, note_refusal, problem_of
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import check_declared
from toolplug.http.pages import healthz
from toolplug.http.problem import HttpProblem, internal, log_fault, method_not_allowed, route_not_found
from toolplug.http.providers.routes import ProviderRoutes
from toolplug.http.request_checks import Entrance
from toolplug.http.routes import Match, OwnRoutes
from toolplug.http.routing import OwnRoute

POLICY_VIOLATION = 1008


async def answer_other_protocol(scope: Scope, receive: Receive, send: Send) -> None:
    """Agree to a lifespan without doing anything in it; refuse a WebSocket."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def admit(route: OwnRoute, host: Host, exchange: Exchange, callers: CallersOnly) -> None:
    """Note who acts: the caller, or the plugin and its session.

    Who it is comes before what there is. Raises `HttpProblem`, for a plugin's own session `AccessError`, and
    `StoreError`.
    """
    if route.audience != "callers":
        token = plugin_token(exchange.headers)
        if token is not None:
            session = await session_of_token(host.sessions, token, exchange.params["code"])
            exchange.session = session
            exchange.principal = Principal(PLUGIN, session.tenant)
            return
        if route.audience == "plugin":
            raise await callers.refused_as_plugin(exchange)
    principal = exchange.principal = await callers.principal(exchange)
    if route.scope is not None and not principal.has_scope(route.scope):
        raise insufficient_scope(route.scope)


_LOG = logging.getLogger("toolplug.http")

_ALIVE = "/healthz"


def create_app(host: Host, *, insecure_no_auth: bool = False, authenticators: Sequence[Authentication] = ()) -> ASGIApp:
    """The host as an ASGI application: to be served as it is, or mounted under a prefix of another one.

    It never enters the host: until somebody has (`host.lifespan`, or `async with host`), every route but `/healthz`
    answers 503. `authenticators` are asked after the API keys and tokens of the configuration. Without either, only
    this machine is served, unless `insecure_no_auth`.
    """
    return _HostApp(host, insecure_no_auth, [as_authenticator(given) for given in authenticators])


class _HostApp:
    def __init__(self, host: Host, insecure_no_auth: bool, authenticators: Sequence[Authenticator]) -> None:
        self._host = host
        self._insecure_no_auth = insecure_no_auth
        self._authenticators = authenticators
        self._own = OwnRoutes()
        self._provided = ProviderRoutes()
        self._made: Entrance | None = None
        self._readmits = self._readmit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan" and self._host.entered:
                self._entrance()  # so that the log says whether it is open before anybody comes
            await answer_other_protocol(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        exchange.readmit = self._readmits
        try:
            await self._serve(exchange)
            if exchange.afterwards is not None:
                await exchange.afterwards()
        except HttpProblem as problem:
            await self._refuse(exchange, problem)
        except KNOWN as error:
            await self._refuse(exchange, problem_of(error, "code" if "code" in exchange.params else "session"))
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  a named boundary: the client hears that it failed, the log where
            log_fault(f"{exchange.method} {exchange.template}", error, exchange.request_id)
            await exchange.refuse(internal())

    async def _serve(self, exchange: Exchange) -> None:
        host = self._host
        if not host.entered:
            if exchange.path == _ALIVE:
                await healthz(host, exchange)
                return
            raise _not_started()
        entrance = self._entrance()
        entrance.check(exchange)
        match = self._own.find(exchange.path)
        if match is not None:
            await self._serve_own(match, exchange, entrance)
            return
        found = self._provided.find(host.registry, exchange)
        if found is None:
            raise route_not_found()
        await self._provided.serve(host.registry, found, exchange, entrance.gatekeeper, entrance.max_body)

    async def _refuse(self, exchange: Exchange, problem: HttpProblem) -> None:
        self._note(exchange, problem)
        await exchange.refuse(problem)

    def _note(self, exchange: Exchange, problem: HttpProblem) -> None:
        if self._host.entered:
            note_refusal(self._host.registry.accounting, exchange, problem, f"{exchange.method} {exchange.template}")

    async def _serve_own(self, match: Match, exchange: Exchange, entrance: Entrance) -> None:
        exchange.template = match.template
        exchange.params = match.params
        if is_preflight(exchange):
            await answer_preflight(exchange, match.methods)
            return
        route = _route(match, exchange.method)
        exchange.max_body = max(entrance.max_body, route.max_body)
        check_declared(exchange.headers, exchange.max_body)
        if route.is_open:
            await route.handler(self._host, exchange)
            return
        await admit(route, self._host, exchange, entrance.gatekeeper)
        token = enter_tenant(exchange)
        try:
            await route.handler(self._host, exchange)
        finally:
            leave_tenant(token)

    async def _readmit(self, exchange: Exchange) -> None:
        """Let the request in again, or not, as the configuration is now."""
        match = self._own.find(exchange.path)
        if match is None:
            return
        try:
            await admit(_route(match, exchange.method), self._host, exchange, self._entrance().gatekeeper)
        except HttpProblem as problem:
            self._note(exchange, problem)
            raise

    def _entrance(self) -> Entrance:
        """The doors for the configuration as it is now."""
        made, settings = self._made, self._host.settings
        if made is None or made.settings is not settings:
            was_open = made is not None and made.open
            made = self._made = Entrance(
                settings,
                lambda: self._host.sessions,
                insecure_no_auth=self._insecure_no_auth,
                authenticators=self._authenticators,
            )
            if made.open and not was_open:
                self._say_that_it_is_open()
        return made

    def _say_that_it_is_open(self) -> None:
        reach = "" if self._insecure_no_auth else "; only this machine is served"
        _LOG.warning("no auth is configured: every caller is anonymous and may do everything%s", reach)


def _route(match: Match, method: str) -> OwnRoute:
    route = match.methods.get("GET" if method == "HEAD" else method)
    if route is None:
        raise method_not_allowed(sorted(match.methods))
    return route


def _not_started() -> HttpProblem:
    message = "the host has not been started; enter it with host.lifespan or `async with host`"
    return HttpProblem(503, "not_started", message)
