"""Routes of the host: Starlette's `Route` and `Router`, with what OpenAPI and the access rules need to know of each."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, TypeAdapter
from starlette.convertors import PathConvertor, StringConvertor
from starlette.responses import Response
from starlette.routing import Route, Router, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from toolplug.catalog.call import DECIDE_SCOPE, DELEGATE, HOST_SCOPES, SEE_APPROVALS
from toolplug.crashes import log_crash
from toolplug.errors import InvalidDefinition
from toolplug.execution.plans import CALL_SCOPE
from toolplug.http.errors import method_not_allowed
from toolplug.http.requests import HostRequest
from toolplug.part_protocols.host_part import HostPart
from toolplug.runtime.tasks import SingleFlight
from toolplug.runtime.threads import in_own_thread

_LOG = logging.getLogger("toolplug.http")

READ = "tools:read"
CALL = CALL_SCOPE
SESSIONS = "sessions:write"
APPROVALS = DECIDE_SCOPE
SEEING_APPROVALS = SEE_APPROVALS
EVERY_SCOPE = frozenset(HOST_SCOPES) - {DELEGATE}

Endpoint = Callable[[HostRequest], Awaitable[Response]]
"""A handler: returns a response, or raises `HttpProblem` or an error that `http/errors.py` knows."""

CONNECT = "/connect"
"""The one path whose second segment is a parameter of a route."""
_BELOW_CONNECT = f"{CONNECT}/"

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

Audience = Literal["callers", "plugin", "either"]
"""Callers with credentials of the host, the application of the session in the path by its token, or both."""

ModelsByStatus = Mapping[int, type | None]

_NO_OTHERS: ModelsByStatus = MappingProxyType({})

NOT_MODIFIED: ModelsByStatus = MappingProxyType({304: None})
EVENTS = ("text/event-stream",)
JSON_OR_EVENTS = ("application/json", *EVENTS)


class Parameter(NamedTuple):
    """A query parameter or header of a request, or a parameter of its path with a pattern."""

    name: str
    description: str
    choices: tuple[str, ...] = ()
    required: bool = False
    place: Literal["query", "header", "path"] = "query"
    pattern: str = ""


TENANT = Parameter("tenant", "whose, where it is not the caller's own; for the scope `operator`")
IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key", "the same key and body within a day give the first result", place="header"
)


class Answered(NamedTuple):
    """A handler and what it answers. Made by `answers`."""

    endpoint: Endpoint
    model: type | None
    status: int
    others: ModelsByStatus
    errors: tuple[int, ...]
    content_types: tuple[str, ...]


class HostRoute(NamedTuple):
    """One method of one path: who may call it, its handler, and its description for OpenAPI. Made by `route`."""

    method: str
    path: str
    scope: str | None
    summary: str
    body: type[BaseModel] | None
    body_required: bool
    parameters: tuple[Parameter, ...]
    audience: Audience
    max_body: int
    endpoint: Endpoint
    answered: Answered
    operation: str

    @property
    def is_open(self) -> bool:
        """Whether no credentials are needed."""
        return self.scope is None and self.audience == "callers"


def answers(
    model: type | None = None,
    *,
    status: int = 200,
    others: ModelsByStatus = _NO_OTHERS,
    errors: tuple[int, ...] = (),
    content_types: tuple[str, ...] = ("application/json",),
) -> Callable[[Endpoint], Answered]:
    """Describe what the decorated handler answers; `route` is above it.

    * `model` is the body of `status`, None where it is not JSON; `others` are answers with another status that are not
      errors.
    * `errors` are the statuses of errors worth describing, without those of every route with credentials (401, 403),
      a body (400, 413, 415) or a session in its path (400, 404, 410).
    """
    return lambda endpoint: Answered(endpoint, model, status, others, errors, content_types)


def route(
    method: str,
    path: str,
    scope: str | None,
    summary: str,
    body: type[BaseModel] | None = None,
    *,
    parameters: tuple[Parameter, ...] = (),
    audience: Audience = "callers",
    max_body: int = 0,
    body_required: bool = True,
) -> Callable[[Answered], HostRoute]:
    """Make a route of the decorated handler, whose name is the operation's id.

    * `path` is a path of Starlette's, whose parameters have no convertor but `path`, for a name that may have slashes.
    * `scope` is what a caller needs. None: a route for callers is open.
    * `max_body`: bytes, where the route takes more than others do.
    * `body_required` False: a request without a body is one with an empty object.
    """

    def make_route(answered: Answered) -> HostRoute:
        endpoint = answered.endpoint
        operation = getattr(endpoint, "__name__", path)
        described = (summary, body, body_required, parameters, audience, max_body)
        return HostRoute(method, path, scope, *described, endpoint, answered, operation)

    return make_route


def routes_in(module: ModuleType) -> tuple[HostRoute, ...]:
    """Return the routes that a module defines, in their order; one that it only imports is another module's."""
    defined = (value for value in vars(module).values() if isinstance(value, HostRoute))
    return tuple(route for route in defined if getattr(route.endpoint, "__module__", None) == module.__name__)


def routes_of(part: HostPart[Any]) -> tuple[HostRoute, ...]:
    """Return the routes of a part; imports their handlers.

    The part of a plugin that raises, or has a route that its description does not announce, has none: the log says why.
    """
    if part.entry is None:
        return tuple(part.routes())
    try:
        routes = tuple(part.routes())
        for item in routes:
            _check_route(part, item)
    except InvalidDefinition as error:
        _LOG.error("%s: the routes of the part %r are left out: %s", part.entry.owner, part.name, error)
    except BaseException as error:  # noqa: BLE001  code of a plugin
        log_crash(f"routes() of the part {part.name!r}", error, part.entry.owner, then="it has no routes")
    else:
        return routes
    return ()


def _check_route(part: HostPart[Any], given: object) -> None:
    """Raise `InvalidDefinition` for a route that is not the part's own, or that cannot be served or described."""
    if not isinstance(given, HostRoute):
        raise InvalidDefinition(f"{given!r} is no route; make it with @route and @answers of toolplug.http")
    shown = f"{given.method} {given.path}"
    if first_segments(given.path) not in part.paths:
        raise InvalidDefinition(f"{shown} begins with none of its paths, which are {', '.join(part.paths) or 'none'}")
    if given.scope is not None and given.scope not in (*HOST_SCOPES, *part.scopes):
        raise InvalidDefinition(f"{shown} needs the scope {given.scope!r}; add it to the scopes of the HostPart")
    if given.method not in _METHODS:
        raise InvalidDefinition(f"{shown} has no method that can be served; give one of {', '.join(_METHODS)}")
    try:
        convertors = compile_path(given.path)[2]
    except (AssertionError, ValueError) as error:
        raise InvalidDefinition(f"{shown} has a path that cannot be matched: {error}") from None
    if any(type(convertor) not in (StringConvertor, PathConvertor) for convertor in convertors.values()):
        raise InvalidDefinition(f"{shown} has a parameter with a convertor; none but :path is allowed")
    if given.audience != "callers" and "code" not in convertors:
        raise InvalidDefinition(f"{shown} is for the plugin of a session, whose {{code}} its path lacks")
    for model in (given.body, given.answered.model, *given.answered.others.values()):
        if model is not None:
            _check_schema(shown, model)


def _check_schema(shown: str, model: type) -> None:
    try:
        TypeAdapter(model).json_schema()
    except Exception as error:
        raise InvalidDefinition(f"{shown} has the model {model!r} without a JSON schema: {error}") from error


class PathRoute(Route):
    """Starlette's `Route` for all methods of one path. `serve` authorizes the request and calls the handler.

    One `Route` for each method would make 405 name the methods of the first one only, and would match a request for
    `DELETE /api/toolsets/active` with the route of `/api/toolsets/{name}`.
    """

    def __init__(self, path: str, methods: Mapping[str, HostRoute], serve: Serve) -> None:
        super().__init__(path, endpoint=self)
        self.by_method: Mapping[str, HostRoute] = methods
        self.counted_methods: frozenset[str] = frozenset(methods) | ({"HEAD"} if "GET" in methods else set())
        self._serve = serve

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose path matches."""
        await self._serve(self, scope, receive, send)

    def route_for(self, method: str) -> HostRoute:
        """Return the route of this method, GET's for HEAD. Raises `HttpProblem` with status 405."""
        route = self.by_method.get("GET" if method == "HEAD" else method)
        if route is None:
            raise method_not_allowed(sorted(self.by_method))
        return route


Serve = Callable[[PathRoute, Scope, Receive, Send], Awaitable[None]]


class HostRouter:
    """One Starlette `Router` for each pair of first segments (`/api/sessions`), which no route has as parameters.

    A single `Router` tries the regular expressions of all paths in turn: 3 µs for the first, 19 µs for the last and for
    every route of a provider, which comes after them, of about 47 µs that a bare Starlette route costs in all.

    The routes of parts are loaded when the first of them is asked for: that imports their handlers.
    """

    def __init__(self, routes: Iterable[HostRoute], serve: Serve, *, default: ASGIApp) -> None:
        self._serve = serve
        self._default = default
        self._own: dict[str, list[HostRoute]] = {}
        for route in routes:
            self._own.setdefault(first_segments(route.path), []).append(route)
        self._routers = {prefix: self._build(own) for prefix, own in self._own.items()}
        self._later: Mapping[str, tuple[HostPart[Any], ...]] = {}
        self._loading: dict[tuple[str, tuple[HostPart[Any], ...]], SingleFlight[Router]] = {}

    def offer(self, parts: Iterable[HostPart[Any]]) -> None:
        """Have the routes of these parts in place of those that were offered before."""
        later: dict[str, tuple[HostPart[Any], ...]] = {}
        for part in parts:
            later |= {prefix: (*later.get(prefix, ()), part) for prefix in part.paths}
        changed = {prefix for prefix in (*self._later, *later) if self._later.get(prefix) != later.get(prefix)}
        routers = {prefix: router for prefix, router in self._routers.items() if prefix not in changed}
        for prefix in changed & self._own.keys() - later.keys():
            routers[prefix] = self._build(self._own[prefix])
        self._routers, self._later = routers, later

    def router_for(self, path: str) -> Router | None:
        """Return the router of a path without the mount prefix; None if no route of the host begins like it."""
        return self._routers.get(first_segments(path))

    def is_later(self, path: str) -> bool:
        """Return whether a part has the routes of a path that has no router."""
        return first_segments(path) in self._later

    async def load(self, path: str) -> Router:
        """Load the routes of the parts of a path, and return their router, with the host's own routes."""
        prefix = first_segments(path)
        parts = self._later[prefix]
        key = prefix, parts
        loading = self._loading.get(key)
        if loading is None:  # all that ask meanwhile share it: each load takes a thread
            loading = self._loading[key] = SingleFlight(partial(self._load, prefix, parts), "toolplug-routes")
        return await loading.join()

    async def _load(self, prefix: str, parts: tuple[HostPart[Any], ...]) -> Router:
        try:
            found = [route for part in parts for route in await in_own_thread(partial(routes_of, part))]
        finally:
            del self._loading[prefix, parts]
        routes = [*self._own.get(prefix, ()), *(each for each in found if first_segments(each.path) == prefix)]
        router = self._build(routes)
        if self._later.get(prefix) == parts:  # else a reload has changed the parts meanwhile
            self._routers = {**self._routers, prefix: router}
        return router

    def _build(self, routes: Iterable[HostRoute]) -> Router:
        """Return the router of routes that begin with the same segments."""
        paths: dict[str, dict[str, HostRoute]] = {}
        for route in routes:
            paths.setdefault(route.path, {})[route.method] = route
        # /toolsets/active comes before /toolsets/{name}
        ordered = [PathRoute(path, paths[path], self._serve) for path in sorted(paths, key=lambda path: "{" in path)]
        return Router(ordered, redirect_slashes=False, default=self._default)


def first_segments(path: str) -> str:
    """Return the first two segments of a path, such as `/v1/responses`; of one below `/connect` the first alone."""
    return CONNECT if path.startswith(_BELOW_CONNECT) else "/".join(path.split("/", 3)[:3])
