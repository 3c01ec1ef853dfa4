"""Rules for routes, metrics and stubs of a provider."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Scope

from toolplug.catalog.call import Principal
from toolplug.catalog.definition import ToolDefinition
from toolplug.http.app import provider_routes
from toolplug.providers.routes import BoundRoute
from toolplug.providers.stubs import expand_builtin_tools
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.subject import Started

Headers = Sequence[tuple[bytes, bytes]]


class Answer(NamedTuple):
    """What came back; status 0: no answer began in time."""

    status: int
    body: bytes


async def requested(
    app: ASGIApp, method: str, path: str, *, headers: Headers = (), body: bytes = b"", within_s: float
) -> Answer:
    """The answer, or as much of it as came within so many seconds; then the request is cancelled."""
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", b"%d" % len(body)), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    exchange = _Exchange(body)
    task = asyncio.create_task(_served(app, scope, exchange))
    await asyncio.wait({task}, timeout=within_s)
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=within_s)
    return Answer(exchange.status, b"".join(exchange.parts))


class _Exchange:
    """The request as the application receives it, and what it sends."""

    def __init__(self, body: bytes) -> None:
        self.status: int = 0
        self.parts: list[bytes] = []
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.parts.append(message.get("body", b""))


async def _served(app: ASGIApp, scope: Scope, exchange: _Exchange) -> None:
    try:
        await app(scope, exchange.receive, exchange.send)
    except Exception:  # noqa: BLE001  what a server would do: an application that raises has answered 500
        exchange.status = exchange.status or 500


def stub_rules(run: Started) -> list[BrokenRule]:
    """The rules of every stub type; one whose options name a required key is not asked for without it."""
    return [
        broken
        for definition in run.registry.catalog.definitions()
        for stub in (definition.hosted.stubs if definition.hosted else ())
        for broken in _expands(run, definition, stub)
    ]


def _expands(run: Started, definition: ToolDefinition, stub: str) -> Iterator[BrokenRule]:
    options = definition.hosted.options if definition.hosted else None
    if options is not None and options.value.get("required"):
        return
    expansion = expand_builtin_tools([{"type": stub}], run.registry)
    for warning in expansion.warnings:
        fix = "let stub_options admit a stub that says nothing but its type"
        yield BrokenRule("stubs", f"stub {stub!r} of tool {definition.name!r}", warning.message, fix)


_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ABBREVIATED = ("_ms", "_milliseconds", "_us", "_minutes", "_hours", "_kb", "_mb", "_kilobytes", "_megabytes")
_RESERVED = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
_TYPES = ("counter", "gauge", "histogram", "summary")
_OURS = "antwort_builtin_"


def metric_rules(collectors: Sequence[Collector]) -> list[BrokenRule]:
    """The rules of everything that the collectors give; each is collected twice, as two scrapes would."""
    broken: list[BrokenRule] = []
    seen: dict[str, Collector] = {}
    for collector in collectors:
        where = f"collector {type(collector).__qualname__}"
        try:
            families, _ = list(collector.collect()), list(collector.collect())
        except Exception as error:  # noqa: BLE001  what a collector raises is what is looked for
            said = f"collect() raised {type(error).__name__}: {error}"
            broken.append(BrokenRule("collectors", where, said, "a scrape would lose its lines"))
            continue
        for family in families:
            if seen.setdefault(family.name, collector) is not collector:
                fix = "give each family to one collector"
                broken.append(BrokenRule("collectors", f"metric {family.name!r}", "comes from two collectors", fix))
            broken += [BrokenRule("metric-names", f"metric {family.name!r}", *found) for found in _lint(family)]
    return broken


def _lint(family: Metric) -> Iterator[tuple[str, str]]:
    """What `promtool check metrics` would say, and what is wrong with it for a host: each with its fix."""
    name = family.name
    if not _NAME.fullmatch(name):
        yield "has a name that is not lower_case_with_underscores", "rename it"
    if name.startswith(_OURS):
        yield f"begins with {_OURS}, which is the host's", "begin with the package's own name"
    if not family.documentation.strip():
        yield "has no help text", "say what it counts"
    if name.endswith(_ABBREVIATED):
        yield "is not in a base unit", "use seconds or bytes"
    if name.endswith(_RESERVED):
        yield "ends as its samples do", "leave the ending out: the client library adds it"
    if any(name.endswith(f"_{kind}") or f"_{kind}_" in name for kind in _TYPES):
        yield "has its type in its name", "leave the type out"
    if any("provider" in sample.labels for sample in family.samples):
        yield "has a label 'provider', which the host adds", "call the label something else"


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
