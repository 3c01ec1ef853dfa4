"""Rules for tenants: what one stores through the provider's tools or routes, another does not see."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.http.app import provider_routes
from toolplug.providers.registry import FunctionRegistry
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.routes import answer_of
from toolplug.testing.provider_rules.subject import Started

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
