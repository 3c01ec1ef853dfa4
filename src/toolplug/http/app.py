"""The ASGI application of a host, and that of the providers' routes alone, on Starlette's routes and requests.

    started? → request checks → route → method → caller → scope → handler

An error anywhere on the way is a response of one shape. `Starlette` itself is not used around it, since the providers'
routes and the checks change while the application runs, and `ExceptionMiddleware` answers no error with an audit line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from time import perf_counter
from urllib.parse import unquote_to_bytes

from starlette.authentication import AuthenticationBackend
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from toolplug.catalog.call import Principal
from toolplug.crashes import log_crash
from toolplug.errors import StoreRefused
from toolplug.execution.accounting import audit_origin
from toolplug.host.host import Host
from toolplug.http.auth.authentication import (
    PLUGIN,
    ApiKeys,
    Authentication,
    AuthFunction,
    CallersOnly,
    Chain,
    Refusals,
    RequestOrigin,
    as_auth_function,
    check_tenant_fields,
    import_token_checks,
    insufficient_scope,
    plugin_token,
    session_of_token,
)
from toolplug.http.auth.protected_resource import add_challenge
from toolplug.http.bodies.request_body import DEFAULT_MAX_BODY, check_declared
from toolplug.http.errors import HttpProblem, internal, problem_of
from toolplug.http.pages import healthz
from toolplug.http.providers.routes import OTHER_METHOD, ProviderRoutes
from toolplug.http.request_checks import RequestChecks, check_headers, preflight_response
from toolplug.http.requests import (
    HostRequest,
    HostState,
    SentResponse,
    add_prefix,
    enter_tenant,
    initial_state,
    leave_tenant,
    unfinished_bodies,
)
from toolplug.http.routes import host_routes
from toolplug.http.routing import HostRoute, HostRouter, PathRoute
from toolplug.providers.registry import FunctionRegistry
from toolplug.runtime.threads import in_own_thread

_LOG = logging.getLogger("toolplug.http")

_WORKERS = "toolplug.http.providers.workers"
"""Serves workers that dial in; imported when one does."""
_WORKERS_PATH = "/v1/workers/"
POLICY_VIOLATION = 1008

_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")


def create_app(
    host: Host,
    *,
    prefix: str = "",
    insecure_no_auth: bool = False,
    authenticators: Sequence[Authentication] = (),
) -> ASGIApp:
    """Return the host as an ASGI application, to be served as it is or mounted under a prefix of another one.

    `prefix` is that prefix, such as `/tools`, for frameworks that do not pass it on (`root_path`). Raises `ValueError`
    for one that is no path.

    It never enters the host: until `host.lifespan` or `async with host` does, every route but `/healthz` answers 503.
    `authenticators` come after the API keys and tokens of the configuration. Without either, only loopback is served,
    unless `insecure_no_auth`.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"create_app: prefix={prefix!r} should be a path without a slash at its end, such as '/tools'")
    return _HostApp(host, prefix, insecure_no_auth, [as_auth_function(given) for given in authenticators])


async def serve_other_protocol(scope: Scope, receive: Receive, send: Send) -> None:
    """Confirm a lifespan without doing anything in it; refuse a WebSocket."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def admit(route: HostRoute, request: HostRequest, callers: CallersOnly) -> None:
    """Authenticate and authorize: set the request's principal, or the session whose application sent it.

    Raises `HttpProblem`, for an application's own session `AccessError`, and `StoreError`.
    """
    # Read from the scope: Starlette's wrapper costs more than the check itself.
    state: HostState = request.scope["state"]
    if route.audience != "callers":
        sessions = state["host"].sessions
        token = plugin_token(state["headers"], sessions)
        if token is not None:
            session = await session_of_token(sessions, token, request.path_params["code"])
            state["session"] = session
            state["principal"] = Principal(PLUGIN, session.tenant)
            return
        if route.audience == "plugin":
            raise await callers.refused_as_plugin(request)
    principal = state["principal"] = await callers.authenticate(request)
    if route.scope is not None and not principal.has_scope(route.scope):
        raise insufficient_scope(route.scope)
    if request.scope.get("query_string"):
        check_tenant_fields(route, request, principal)


# Clients of MCP are given URLs with and without a slash at the end, and a redirect would lose their POST.
_MCP_WITH_SLASH = re.compile(r"(?:/api/sessions/[^/]+)?/mcp/")


class _HostApp:
    def __init__(self, host: Host, prefix: str, insecure_no_auth: bool, authenticators: Sequence[AuthFunction]) -> None:
        self._host = host
        self._prefix = prefix
        self._insecure_no_auth = insecure_no_auth
        self._authenticators = authenticators
        routes = host_routes(lambda: host.parts)
        self._router = HostRouter(routes, self._serve_route, default=self._serve_provider)
        self._refusals = Refusals()
        # The providers' routes change with each reload; their router is made from the registry at the time of a
        # request.
        self._provided = ProviderRoutes(self._refusals, self._reachable_providers, self._open_stream)
        self._checks: RequestChecks | None = None
        # Bound once: a bound method is a new object at each look-up, and every request gets it.
        self._readmits = self._readmit
        self._bodies = unfinished_bodies(lambda: host.settings.http.edge.body_memory)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        if scope.get("root_path", "").endswith("/"):
            scope["root_path"] = scope["root_path"].rstrip("/")  # some frameworks mount under `/tools/`
        if self._prefix:
            add_prefix(scope, self._prefix)
        state = initial_state(scope)
        state["host"] = self._host
        state["bodies"] = self._bodies
        state["readmit"] = self._readmits
        # Around everything that follows, so that an error after the first byte is known to be too late for a response.
        sent = SentResponse(scope, send, state["request_id"])
        began = perf_counter()
        try:
            await self._serve(state["path"], scope, receive, sent)
        # Nobody is left to be answered, and it is no fault of ours.
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001  a named boundary: the client learns that it failed, the log where
            known = problem_of(error, "code" if "code" in scope.get("path_params", ()) else "session")
            if known is None:
                log_crash(f"{scope['method']} {state['template']}", error, request_id=state["request_id"])
            else:
                known = self._note_refusal(scope, state, known)
            if isinstance(error, StoreRefused):  # the caller learns only that the store cannot answer
                _LOG.error("%s %s: %s", scope["method"], state["template"], error)
            if not sent.has_started:  # else the response ends too early, and the server closes the connection
                await (known or internal()).response(state["request_id"])(scope, receive, sent)
        finally:
            matched = scope.get("route")
            # Only templates of our own are labels of metrics: paths that clients make up would fill the memory of
            # Prometheus.
            if type(matched) is PathRoute and self._host.entered:
                method = scope["method"] if scope["method"] in matched.counted_methods else OTHER_METHOD
                seconds = (sent.started_at or perf_counter()) - began
                self._host.operations.request(method, matched.path, sent.status, seconds)

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a worker that dials in, or confirm a lifespan."""
        if scope["type"] == "websocket" and _WORKERS_PATH in scope.get("path", ""):
            await self._serve_worker(scope, receive, send)
            return
        if scope["type"] == "lifespan" and self._host.entered:
            await in_own_thread(partial(import_token_checks, self._host.settings.auth))
            self._current_checks()  # so that the log warns of missing auth before the first request
        await serve_other_protocol(scope, receive, send)

    async def _serve_worker(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a worker that dials in: nothing else uses a WebSocket. A refusal is the response to its request."""
        request: Scope = {**scope, "type": "http", "method": "GET"}
        if self._prefix:
            add_prefix(request, self._prefix)
        state = initial_state(request)
        state["host"], state["template"] = self._host, "/v1/workers/{key}"
        sent = SentResponse(request, send, state["request_id"])
        try:
            if not self._host.entered:
                raise HttpProblem(503, "not_started", "the host has not been started")
            checks, workers = self._current_checks(), import_module(_WORKERS)
            checks.check(request, state["path"], sent)
            workers.check_browser(request)
            principal = state["principal"] = await checks.callers.authenticate(Request(request))
            provider = workers.dialled_provider(self._host, state["path"], principal)
        except Exception as error:  # noqa: BLE001  as for requests: the client learns that it failed
            problem = problem_of(error, "session")
            if problem is None:
                log_crash("a worker that dials in", error, request_id=state["request_id"])
            problem = internal() if problem is None else self._note_refusal(request, state, problem)
            await problem.response(state["request_id"])(scope, receive, send)
            return
        await workers.serve_worker(provider, receive, send, lambda: self._host.admin.process_names)

    async def _serve(self, path: str, scope: Scope, receive: Receive, sent: SentResponse) -> None:
        if not self._host.entered:
            # The process lives although the host does not serve yet: an orchestrator must not kill it while it starts.
            if path != healthz.path:
                message = "the host has not been started; enter it with host.lifespan or `async with host`"
                raise HttpProblem(503, "not_started", message)
            response = await healthz.endpoint(Request(scope, receive, sent))
            await response(scope, receive, sent)
            return
        checks = self._current_checks()
        # Before the route is looked up: a stranger must not learn which paths exist.
        checks.check(scope, path, sent)
        if path[-1] == "/":
            if path == "/":
                if scope["path"] == scope.get("root_path", ""):
                    scope["path"] += "/"  # Starlette's router sees no path at all in the mount point without a slash
            elif _MCP_WITH_SLASH.fullmatch(path) or not unquote_to_bytes(scope.get("raw_path", b"/")).endswith(
                b"/"
            ):  # Litestar ends the path of a mount so, and people the URL of an MCP server
                scope["path"] = scope["path"][:-1]
                path = scope["state"]["path"] = path[:-1]
        # By the first segments of the path, so that the routes of a part are imported when one of them is asked for.
        router = self._router.router_for(path)
        if router is None and self._router.is_later(path):
            router = await self._router.load(path)
        if router is None:
            await self._provided.serve(self._host.registry, scope, receive, sent, checks.callers, checks.max_body)
        else:
            await router.app(scope, receive, sent)

    async def _serve_route(self, matched: PathRoute, scope: Scope, receive: Receive, send: Send) -> None:
        state: HostState = scope["state"]
        state["template"] = matched.path
        checks = self._current_checks()
        # A browser sends a preflight without credentials, and expects no 401.
        if checks.is_preflight(scope, state["path"]):
            await preflight_response(scope, matched.by_method)(scope, receive, send)
            return
        route = matched.route_for(scope["method"])
        limit = state["max_body"] = max(checks.max_body, route.max_body)
        check_declared(state["headers"], limit)
        request: HostRequest = Request(scope, receive, send)
        if route.is_open:
            response = await route.endpoint(request)
            await response(scope, receive, send)
            return
        await admit(route, request, checks.callers)
        # Context variables, which handlers and the audit log read without passing them through every function.
        token, origin = enter_tenant(state["principal"]), audit_origin.set(RequestOrigin(scope, checks.proxies))
        try:
            response = await route.endpoint(request)
            await response(scope, receive, send)
        finally:
            audit_origin.reset(origin)
            # A server may run the next request of a connection in the same context.
            leave_tenant(token)

    def _serve_provider(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a provider's route at a path that begins as some of the host's do, but matches none of them."""
        assert isinstance(send, SentResponse)
        checks = self._current_checks()
        return self._provided.serve(self._host.registry, scope, receive, send, checks.callers, checks.max_body)

    async def _readmit(self, request: HostRequest) -> None:
        """Authenticate and authorize the request again, under the configuration as it is now."""
        matched = request.scope["route"]
        assert isinstance(matched, PathRoute)
        try:
            await admit(matched.route_for(request.method), request, self._current_checks().callers)
        except HttpProblem as problem:
            self._note(request.scope, request.state, problem)
            raise

    def _note_refusal(self, scope: Scope, state: HostState, problem: HttpProblem) -> HttpProblem:
        """Audit and count the problem; return the one to send to the client."""
        if self._host.entered:
            problem = add_challenge(self._refusals.apply_brake(scope, problem), Request(scope))
            self._note(scope, state, problem)
        return problem

    def _reachable_providers(self, principal: Principal) -> Collection[str]:
        """Return the keys of the providers that the agents of the principal can reach."""
        reach = self._host.reach(principal)
        return () if reach is None else reach.providers

    def _open_stream(self, tenant: str, subject: str) -> AbstractContextManager[None]:
        return self._host.quotas.stream(tenant, subject)

    def _note(self, scope: Scope, state: HostState, problem: HttpProblem) -> None:
        if self._host.entered:
            accounting = self._host.registry.accounting
            self._refusals.note(accounting, scope, state, problem, f"{scope['method']} {state['template']}")

    def _current_checks(self) -> RequestChecks:
        """Return the checks for the current configuration, built again when it has changed."""
        # By identity: a reload replaces the settings as a whole, and an unchanged file keeps them.
        checks, settings = self._checks, self._host.settings
        if checks is None or checks.settings is not settings:
            was_open = checks is not None and checks.open
            checks = self._checks = RequestChecks(
                settings,
                lambda: self._host.sessions,
                shared=[path for part in self._host.parts for path in part.shared],
                insecure_no_auth=self._insecure_no_auth,
                authenticators=self._authenticators,
            )
            self._refusals.proxies = checks.proxies
            self._router.offer(self._host.parts)
            self._refusals.counts_stored_bytes = settings.quotas.sets("stored_bytes")
            if checks.open and not was_open:
                reach = "" if self._insecure_no_auth else "; only this machine is served"
                _ = self._host.decision_key  # made at the start, so that people find its file
                _LOG.warning("no auth is configured: every caller is anonymous and may do everything%s", reach)
        return checks


def provider_routes(
    registry: FunctionRegistry, *, auth: Authentication | Sequence[Authentication], max_body: int = DEFAULT_MAX_BODY
) -> ASGIApp:
    """Return an ASGI application with every route of the registry's active providers, as they are at each request.

    `auth` authenticates every request and has no default: an `async (connection) -> Principal | None`, a Starlette
    `AuthenticationBackend`, or several of them, called in order. Hosts, origins and `/metrics` are the surrounding
    application's. `max_body`: bytes.
    """
    given = (auth,) if callable(auth) or isinstance(auth, AuthenticationBackend) else auth
    # No API keys of a configuration here: there is no host, and so no file.
    return _ProviderApp(registry, Chain(ApiKeys(()), [as_auth_function(item) for item in given]), max_body)


class _ProviderApp:
    def __init__(self, registry: FunctionRegistry, chain: Chain, max_body: int) -> None:
        self._registry = registry
        self._chain = chain
        self._max_body = max_body
        self._refusals = Refusals()
        self._bodies = unfinished_bodies()
        no_toolset: tuple[str, ...] = ()  # so no agent reaches anything
        self._routes = ProviderRoutes(self._refusals, lambda _: no_toolset, lambda tenant, key: nullcontext())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await serve_other_protocol(scope, receive, send)
            return
        state, registry = initial_state(scope), self._registry
        state["bodies"] = self._bodies
        sent = SentResponse(scope, send, state["request_id"])
        try:
            check_headers(scope["headers"], state["headers"])
            await self._routes.serve(registry, scope, receive, sent, self._chain, self._max_body)
        except HttpProblem as problem:
            target = f"{scope['method']} {state['template']}"
            self._refusals.note(registry.accounting, scope, state, problem, target)
            await problem.response(state["request_id"])(scope, receive, sent)
