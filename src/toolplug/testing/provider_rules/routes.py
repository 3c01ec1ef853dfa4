"""What a provider's routes answer: to a stranger, to a caller, and to a body that is no JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from toolplug.catalog.call import Principal
from toolplug.http.providers.app import provider_routes
from toolplug.providers.authoring import BoundRoute
from toolplug.testing.asgi_request import Answer, Headers, requested
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.subject import Started

TOKEN = "a-key-of-the-check"
CREDENTIALS: Headers = ((b"authorization", f"Bearer {TOKEN}".encode()),)

_PARAMETER = re.compile(r"{\w+(?::(\w+))?}")
_FILLED = {"int": "1", "float": "1.5", "uuid": "00000000-0000-4000-8000-000000000000", "path": "some/path"}
_JSON: Headers = ((b"content-type", b"application/json"),)
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_BROKEN_JSON = b'{"unfinished": '


async def route_rules(run: Started) -> list[BrokenRule]:
    """The rules of every route, behind the host's own authentication."""

    async def authenticate(connection: HTTPConnection) -> Principal | None:
        known = connection.headers.get("authorization") == f"Bearer {TOKEN}"
        return run.subject.principal if known else None

    app = provider_routes(run.registry, auth=authenticate)
    return await answered_rules(app, run.generation.routes, within_s=run.subject.within_s)


async def answered_rules(app: ASGIApp, routes: Sequence[BoundRoute], *, within_s: float) -> list[BrokenRule]:
    """The rules of these routes, served by this application under `TOKEN`."""
    broken: list[BrokenRule] = []
    for route in routes:
        path = _PARAMETER.sub(lambda found: _FILLED.get(found.group(1) or "", "something"), route.path)
        stranger = await requested(app, route.method, path, within_s=within_s)
        caller = await requested(app, route.method, path, headers=CREDENTIALS, within_s=within_s)
        broken += [*_stranger(route, stranger), *_caller(route, caller, "to a request without a body")]
        if route.method in _WITH_BODY:
            headers = (*CREDENTIALS, *_JSON)
            garbage = await requested(app, route.method, path, headers=headers, body=_BROKEN_JSON, within_s=within_s)
            broken += _caller(route, garbage, "to a body that is no JSON")
    return broken


def _stranger(route: BoundRoute, answer: Answer) -> Iterator[BrokenRule]:
    if not route.public and answer.status != 401:
        fix = "serve it through toolplug.http, which asks for credentials"
        yield BrokenRule("route-auth", _shown(route), f"answers {answer.status} without credentials, not 401", fix)


def _caller(route: BoundRoute, answer: Answer, when: str) -> Iterator[BrokenRule]:
    if answer.status == 401:
        fix = "leave credentials to the host; the tenant is in request.state.tenant"
        yield BrokenRule("routes", _shown(route), f"answers 401 {when} with credentials", fix)
    if answer.status == 0 or answer.status >= 500:
        said = "does not answer" if answer.status == 0 else f"answers {answer.status}"
        fix = "answer what the client did wrong with 400, 404 or 422"
        yield BrokenRule("routes", _shown(route), f"{said} {when}", fix)


def _shown(route: BoundRoute) -> str:
    return f"route {route.method} {route.path}"
