"""The providers' routes: found anew for every request, behind auth, with tenant, drain and metrics.

find → authenticate → scope → switch → handler → count
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from toolplug.errors import StoreUnavailable
from toolplug.http.auth.chain import Gatekeeper, insufficient_scope
from toolplug.http.doors.body import MAX_FILE_BODY, bounded, check_declared
from toolplug.http.exchange import Exchange
from toolplug.http.fault_log import log_fault
from toolplug.http.http_exception import as_problem
from toolplug.http.problem import HttpProblem, internal, method_not_allowed, route_not_found, store_unavailable
from toolplug.http.providers.route_index import Found, RouteIndex
from toolplug.http.refusals import note_refusal
from toolplug.http.scopes import CALL
from toolplug.http.served_tenant import enter_tenant, leave_tenant, state_of
from toolplug.providers.registry import FunctionRegistry
from toolplug.providers.route_table import MountedRoute

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
            note_refusal(registry.ledger, exchange, problem, f"{method} {place.template}")
            await exchange.refuse(problem)
        finally:
            ledger = registry.ledger
            ledger.route(place.key if route is None else route.key, method, place.template).record(
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
