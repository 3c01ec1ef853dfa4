"""The providers' routes: found anew for every request, behind auth, with tenant, drain and metrics.

find → authenticate → scope → switch → handler → count
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any, NamedTuple

from starlette.convertors import Convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import compile_path

from toolplug.errors import StoreUnavailable
from toolplug.http.auth.chain import Gatekeeper, insufficient_scope
from toolplug.http.caller_catalog import enter_tenant, leave_tenant, state_of
from toolplug.http.errors import as_problem, note_refusal
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import MAX_FILE_BODY, bounded, check_declared
from toolplug.http.problem import (
    HttpProblem,
    internal,
    log_fault,
    method_not_allowed,
    route_not_found,
    store_unavailable,
)
from toolplug.http.routing import CALL
from toolplug.providers.registry import FunctionRegistry
from toolplug.providers.route_table import MountedRoute

_NOTHING: dict[str, object] = {}


class Place(NamedTuple):
    """One path as declared, and what stands there by method; `key` is the provider of the first."""

    key: str
    template: str
    methods: dict[str, MountedRoute]
    pattern: re.Pattern[str]
    convertors: Mapping[str, Convertor[Any]]


class Found(NamedTuple):
    """Where a request goes: `route` is None where the path lacks the method, which `allowed` names then."""

    place: Place
    route: MountedRoute | None
    params: dict[str, object]
    allowed: tuple[str, ...] = ()


class RouteIndex:
    """One reading of the route table. HEAD is answered by what answers GET."""

    def __init__(self, routes: Iterable[MountedRoute]) -> None:
        self._exact: dict[str, Place] = {}
        self._patterns: list[Place] = []
        places: dict[str, Place] = {}
        for item in routes:
            template = item.route.path
            place = places.get(template)
            if place is None:
                pattern, _, convertors = compile_path(template)
                place = places[template] = Place(item.key, template, {}, pattern, convertors)
                if convertors:
                    self._patterns.append(place)
                else:
                    self._exact[template] = place
            place.methods.setdefault(item.route.method, item)

    def find(self, path: str, method: str) -> Found | None:
        """What serves this request; None where no template fits the path."""
        method = "GET" if method == "HEAD" else method
        exact = self._exact.get(path)
        if exact is not None:
            route = exact.methods.get(method)
            if route is not None:
                return Found(exact, route, _NOTHING)
        first: Place | None = None
        allowed: list[str] = []
        for place, params in self._fitting(path):
            route = place.methods.get(method)
            if route is not None:
                return Found(place, route, params)
            first = first or place
            allowed += place.methods
        return None if first is None else Found(first, None, _NOTHING, tuple(dict.fromkeys(allowed)))

    def _fitting(self, path: str) -> Iterator[tuple[Place, dict[str, object]]]:
        exact = self._exact.get(path)
        if exact is not None:
            yield exact, _NOTHING
        for place in self._patterns:
            match = place.pattern.fullmatch(path)
            if match is not None:
                values = match.groupdict()
                yield place, {name: place.convertors[name].convert(value) for name, value in values.items()}


OTHER_METHOD = "_other"
"""The method's label where the path lacks it: what a client sends is no label."""

_FILES = "/files"
_WHOLE = frozenset({Response, JSONResponse, PlainTextResponse, HTMLResponse})
"""Responses that do nothing but send themselves."""


class ProviderRoutes:
    """Serves the routes that a registry has now."""

    def __init__(self) -> None:
        self._seen: tuple[MountedRoute, ...] = ()
        self._index = RouteIndex(())

    def find(self, registry: FunctionRegistry, exchange: Exchange) -> Found | None:
        """What serves this request now."""
        routes = registry.routes
        if routes is not self._seen:
            self._seen, self._index = routes, RouteIndex(routes)
        return self._index.find(exchange.path, exchange.method)

    async def serve(
        self, registry: FunctionRegistry, found: Found, exchange: Exchange, gatekeeper: Gatekeeper, max_body: int
    ) -> None:
        """Answer the request, whatever its handler does, and count it."""
        began = perf_counter()
        place, route, _, allowed = found
        method = exchange.method if route is not None else OTHER_METHOD
        try:
            if route is None:
                raise method_not_allowed(allowed)
            exchange.max_body = _limit(exchange.method, place.template, max_body)
            check_declared(exchange.headers, exchange.max_body)
            await _admit(route, exchange, gatekeeper)
            await _handled(route, found, exchange)
        except HttpProblem as problem:
            note_refusal(registry.accounting, exchange, problem, f"{method} {place.template}")
            await exchange.refuse(problem)
        finally:
            accounting = registry.accounting
            accounting.route(place.key if route is None else route.key, method, place.template).record(
                str(exchange.status), perf_counter() - began
            )


def _limit(method: str, template: str, max_body: int) -> int:
    """How large the body may be: files that are uploaded (`POST …/files`) have a limit of their own."""
    return max(max_body, MAX_FILE_BODY) if method == "POST" and template.endswith(_FILES) else max_body


async def _admit(route: MountedRoute, exchange: Exchange, gatekeeper: Gatekeeper) -> None:
    """Raise `HttpProblem` unless the caller may use this route; a public one takes anybody."""
    if route.public:
        return
    principal = await gatekeeper.principal(exchange)
    exchange.principal = principal
    scope = route.route.scope or CALL
    if not principal.has_scope(scope):
        raise insufficient_scope(scope)


async def _handled(route: MountedRoute, found: Found, exchange: Exchange) -> None:
    """Run the handler as the caller's tenant; its provider is not closed before the handler has ended."""
    switch = route.switch
    if not switch.open:
        raise route_not_found()
    scope = exchange.scope
    scope["path_params"] = {**scope.get("path_params", {}), **found.params}
    scope["state"] = state_of(exchange)
    token = enter_tenant(exchange)
    switch.running += 1
    try:
        request = Request(scope, bounded(exchange.receive, exchange.max_body), exchange.send)
        response = await route.route.endpoint(request)
        if type(response) in _WHOLE and response.background is None:
            await exchange.answer_whole(response)
        else:
            await response(scope, request.receive, exchange.send)
    except HttpProblem:
        raise
    except HTTPException as error:
        raise as_problem(error) from error
    except StoreUnavailable as error:
        raise store_unavailable() from error
    except ClientDisconnect:
        return
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise _failed(route, exchange, error) from error
    except BaseException as error:
        raise _failed(route, exchange, error) from error
    finally:
        switch.leave()
        leave_tenant(token)


def _is_cancelled() -> bool:
    """Was the request itself cancelled: a handler may raise the same on its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failed(route: MountedRoute, exchange: Exchange, error: BaseException) -> HttpProblem:
    log_fault(f"the handler of {route.shown} (provider {route.key!r})", error, exchange.request_id)
    return internal()
