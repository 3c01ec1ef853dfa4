"""Rules for the routes and stubs of a provider, and for tenants: what one stores, another does not see."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Scope

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.http.app import provider_routes
from toolplug.model_apis.stubs import expand_builtin_tools
from toolplug.providers.registry import FunctionRegistry
from toolplug.providers.routes import BoundRoute
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.subject import Started

Headers = Sequence[tuple[bytes, bytes]]


async def request_status(
    app: ASGIApp, method: str, path: str, *, headers: Headers = (), body: bytes = b"", within_s: float
) -> int:
    """Return the status of the response, 0 if none begins within `within_s` seconds; then the request is cancelled."""
    return (await answer_of(app, method, path, headers=headers, body=body, within_s=within_s))[0]


async def answer_of(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    query: str = "",
    headers: Headers = (),
    body: bytes = b"",
    within_s: float,
) -> tuple[int, bytes]:
    """Return status and body of the response; the status is 0 if none begins within `within_s` seconds."""
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", b"%d" % len(body)), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    status, answered = 0, bytearray()

    async def receive() -> Message:
        if not messages:
            # The client stays connected, as one does that waits for its response.
            await asyncio.Event().wait()
        return messages.pop()

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        answered.extend(message.get("body", b""))

    async def serve() -> None:
        nonlocal status
        try:
            await app(scope, receive, send)
        except Exception:  # noqa: BLE001  as in a server, an application that raises before it responds has answered 500
            status = status or 500

    task = asyncio.create_task(serve())
    await asyncio.wait({task}, timeout=within_s)
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=within_s)
    return status, bytes(answered)


def stub_rules(run: Started) -> list[BrokenRule]:
    """Check that each stub type without required options expands without a warning."""
    fix = "let stub_options admit a stub that says nothing but its type"
    return [
        BrokenRule("stubs", f"stub {stub!r} of tool {definition.name!r}", warning.message, fix)
        for definition in run.registry.catalog.definitions()
        if (hosted := definition.hosted) and not (hosted.options and hosted.options.value.get("required"))
        for stub in hosted.stubs
        for warning in expand_builtin_tools([{"type": stub}], run.registry).warnings
    ]


TOKEN = "a-key-of-the-check"
CREDENTIALS: Headers = ((b"authorization", f"Bearer {TOKEN}".encode()),)

_PARAMETER = re.compile(r"{\w+(?::(\w+))?}")
FILLED = {
    "str": "something",
    "int": "1",
    "float": "1.5",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "path": "some/path",
}
_JSON: Headers = ((b"content-type", b"application/json"),)
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_BROKEN_JSON = b'{"unfinished": '


async def route_rules(run: Started) -> list[BrokenRule]:
    """Check every route behind the host's own authentication."""

    async def authenticate(connection: HTTPConnection) -> Principal | None:
        known = connection.headers.get("authorization") == f"Bearer {TOKEN}"
        return run.subject.principal if known else None

    app = provider_routes(run.registry, auth=authenticate)
    return await answered_rules(app, run.generation.routes, within_s=run.subject.within_s)


async def answered_rules(app: ASGIApp, routes: Sequence[BoundRoute], *, within_s: float) -> list[BrokenRule]:
    """Check the routes of an application that accepts `TOKEN`."""
    broken: list[BrokenRule] = []
    for route in routes:
        where = f"route {route.method} {route.path}"
        path = _PARAMETER.sub(lambda found: FILLED.get(found.group(1) or "str", "something"), route.path)
        stranger = await request_status(app, route.method, path, within_s=within_s)
        caller = await request_status(app, route.method, path, headers=CREDENTIALS, within_s=within_s)
        if not route.public and stranger != 401:
            fix = "serve it through toolplug.http, which asks for credentials"
            broken.append(BrokenRule("route-auth", where, f"answers {stranger} without credentials, not 401", fix))
        broken += _caller(where, caller, "to a request without a body")
        if route.method in _WITH_BODY:
            headers = (*CREDENTIALS, *_JSON)
            garbage = await request_status(
                app, route.method, path, headers=headers, body=_BROKEN_JSON, within_s=within_s
            )
            broken += _caller(where, garbage, "to a body that is no JSON")
    return broken


def _caller(where: str, status: int, when: str) -> Iterator[BrokenRule]:
    if status == 401:
        fix = "leave credentials to the host; the tenant is in request.state.tenant"
        yield BrokenRule("routes", where, f"answers 401 {when} with credentials", fix)
    if status == 0 or status >= 500:
        what = "does not answer" if status == 0 else f"answers {status}"
        yield BrokenRule("routes", where, f"{what} {when}", "answer what the client did wrong with 400, 404 or 422")


TENANTS = ("tenant-of-the-writer", "tenant-of-a-stranger")


class RouteAnswer(NamedTuple):
    """The answer of a route: its status, and its body as JSON, or as text if it is none.

    ```python
    import asyncio

    from toolplug import FunctionProvider, route
    from toolplug.testing import RouteAnswer, TenantCaller, check_provider

    class Notes(FunctionProvider):
        async def start(self, site):
            self.notes = {}

        @route("GET", "/v1/notes")
        async def show(self, request):
            "List the notes of the caller's tenant."
            return self.notes.setdefault(request.state.tenant, [f"of {request.state.tenant}"])

    async def write(caller: TenantCaller) -> object:
        answer: RouteAnswer = await caller.request("GET", "/v1/notes")
        assert answer.status == 200
        return answer.body

    async def sees(caller: TenantCaller, written: object) -> bool:
        return (await caller.request("GET", "/v1/notes")).body == written

    asyncio.run(check_provider(Notes, isolation=[(write, sees)]))
    ```
    """

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class TenantCaller:
    """One of the two callers of an isolation check. They have the same subject and scopes, and differ in the tenant.

    ```python
    import asyncio

    from toolplug import CallContext, FunctionProvider, tool
    from toolplug.testing import TenantCaller, check_provider

    class Notes(FunctionProvider):
        async def start(self, site):
            self.notes = {}

        @tool
        async def add(self, text: str, context: CallContext) -> str:
            "Write a note.\n\nArgs:\n    text: what to write"
            self.notes.setdefault(context.principal.tenant, []).append(text)
            return "written"

        @tool(read_only=True)
        async def show(self, context: CallContext) -> list[str]:
            "Show the notes."
            return self.notes.get(context.principal.tenant, [])

    async def write(caller: TenantCaller):
        await caller.call("add", text="milk")

    async def sees(caller: TenantCaller, written) -> bool:
        return "milk" in (await caller.call("show")).output

    asyncio.run(check_provider(Notes, calls={"add": {"text": "tea"}, "show": {}}, isolation=[(write, sees)]))
    ```
    """

    principal: Principal
    registry: FunctionRegistry
    app: ASGIApp
    within_s: float

    async def call(self, tool: str, /, **arguments: object) -> ToolResult:
        """Call a tool of the provider."""
        return await self.registry.execute(ToolCall("call", tool, arguments), CallContext(principal=self.principal))

    async def request(self, method: str, path: str, body: object = None) -> RouteAnswer:
        """Request a route of the provider; `body` is sent as JSON."""
        # The tenant itself is the credential: only the two callers of this check use the application.
        headers = [(b"authorization", f"Bearer {self.principal.tenant}".encode())]
        if body is not None:
            headers.append((b"content-type", b"application/json"))
        sent = b"" if body is None else json.dumps(body).encode()
        plain, _, query = path.partition("?")
        status, answered = await answer_of(
            self.app, method, plain, query=query, headers=headers, body=sent, within_s=self.within_s
        )
        try:
            return RouteAnswer(status, json.loads(answered))
        except ValueError:
            return RouteAnswer(status, answered.decode("utf-8", "replace"))


Write = Callable[[TenantCaller], Awaitable[object]]
"""Stores something as the caller; what it returns, such as an id, is passed to `Sees`."""
Sees = Callable[[TenantCaller, Any], Awaitable[bool]]
"""Returns whether the caller sees what was written."""
Isolation = tuple[Write, Sees]


async def isolation_rules(run: Started, pairs: Sequence[Isolation]) -> list[BrokenRule]:
    """Check each pair: the writer sees what it wrote, and a caller of another tenant does not."""
    principals = {tenant: replace(run.subject.principal, tenant=tenant) for tenant in TENANTS}

    async def authenticate(connection: HTTPConnection) -> Principal | None:
        return principals.get(connection.headers.get("authorization", "").removeprefix("Bearer "))

    app = provider_routes(run.registry, auth=authenticate)
    writer, stranger = (
        TenantCaller(principal, run.registry, app, run.subject.within_s) for principal in principals.values()
    )
    broken: list[BrokenRule] = []
    for write, sees in pairs:
        where = f"{_name_of(write)}, {_name_of(sees)}"
        try:
            written = await write(writer)
            own, others = await sees(writer, written), await sees(stranger, written)
        except Exception as error:  # noqa: BLE001  any error of the author's functions is reported
            what, fix = f"raised {type(error).__name__}: {error}", "fix the functions of isolation="
        else:
            if not own:
                what, fix = "the writer does not see it", "return True for the writer, else nothing is shown"
            elif others:
                what, fix = "a caller of another tenant sees it", "key what is kept by context.principal.tenant"
            else:
                continue
        broken.append(BrokenRule("isolation", where, what, fix))
    return broken


def _name_of(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
