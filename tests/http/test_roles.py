"""`admin` acts in its own tenant; what concerns another tenant or the whole host needs `operator`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from httpx2 import AsyncClient, Response
from tests.http.all_routes import all_routes
from tests.http.conftest import as_holder, client_of, settings

from toolplug import Principal, open_host
from toolplug.http import create_app
from toolplug.http.routing import HostRoute

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-scope-operator")]

ADMIN, OPERATOR, BOTH = as_holder("admin-key"), as_holder("operator-key"), as_holder("both-key")
KEYS = [
    {"key": "alice-key", "subject": "alice", "tenant": "t1"},
    {"key": "admin-key", "subject": "eve", "tenant": "t2", "scopes": ["admin"]},
    {"key": "operator-key", "subject": "olga", "tenant": "t2", "scopes": ["operator"]},
    {"key": "both-key", "subject": "root", "tenant": "t2", "scopes": ["admin", "operator"]},
]
BODIES: dict[str, object] = {"/v1/approvals/{id}": {"decision": "approve"}}
ACROSS = [route for route in all_routes() if {item.name for item in route.parameters} & {"tenant", "tenants"}]
HOST_WIDE = [
    ("POST", "/v1/reload"),
    ("POST", "/v1/providers/sample/enable"),
    ("POST", "/v1/providers/sample/disable"),
    ("PATCH", "/api/mcp-servers/infile"),
    ("POST", "/api/mcp-servers/infile/discover"),
    ("POST", "/api/mcp-servers/infile/accept"),
]


@pytest.fixture
async def client(sample_package: None) -> AsyncIterator[AsyncClient]:
    servers = {"infile": {"url": "http://127.0.0.1:9/mcp", "enabled": False}}
    rules = {"echo": {"policy": "ask", "tenants": ["t1", "t2"]}}
    sections = {"auth": {"api_keys": KEYS}, "mcp_servers": servers}
    given = settings(providers={"sample": {"enabled": True, "tools": rules}}, **sections)
    async with open_host(given, environ={}) as host, client_of(create_app(host)) as opened:
        yield opened


def names(answer: Response) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["param"]


async def ask_across(client: AsyncClient, route: HostRoute, who: dict[str, str], tenant: str = "t1") -> Response:
    """Send the route's request for another tenant, or for all of them."""
    taken = {item.name for item in route.parameters}
    query = {"tenant": tenant} if "tenant" in taken else {"tenants": "all"}
    if "tool" in taken:
        query["tool"] = "echo"
    path = re.sub(r"{[^}]*}", "a1b2c3d4", route.path)
    return await client.request(route.method, path, params=query, headers=who, json=BODIES.get(route.path))


def test_the_routes_that_name_a_tenant_are_those_that_this_page_tries() -> None:
    assert {(route.method, route.path) for route in ACROSS} == {
        ("GET", "/v1/tools"),
        ("GET", "/v1/explain"),
        ("GET", "/v1/approvals"),
        ("POST", "/v1/approvals/{id}"),
        ("GET", "/v1/grants"),
        ("DELETE", "/v1/grants/{id}"),
        ("GET", "/v1/connections"),
        ("DELETE", "/v1/connections/{server}"),
        ("GET", "/api/sessions"),
        ("GET", "/api/session-types"),
        ("GET", "/api/catalog"),
    }


@pytest.mark.parametrize("route", ACROSS, ids=lambda route: f"{route.method} {route.path}")
async def test_an_admin_of_another_tenant_reads_and_decides_nothing_there(
    client: AsyncClient, route: HostRoute
) -> None:
    for tenant in ("t1", "nobody's"):
        assert names(await ask_across(client, route, ADMIN, tenant)) == (403, "insufficient_scope", "operator")
    missing = await ask_across(client, route, OPERATOR)
    assert names(missing) == (403, "insufficient_scope", route.scope), "operator implies no other scope"
    assert (await ask_across(client, route, BOTH)).status_code in (200, 404)


@pytest.mark.parametrize(("method", "path"), HOST_WIDE)
async def test_what_concerns_the_whole_host_needs_operator(client: AsyncClient, method: str, path: str) -> None:
    body: dict[str, Any] | None = {"enabled": False} if method == "PATCH" else None
    assert names(await client.request(method, path, headers=ADMIN, json=body)) == (
        403,
        "insufficient_scope",
        "operator",
    )
    assert (await client.request(method, path, headers=BOTH, json=body)).status_code in (200, 409)


async def test_the_approval_of_another_tenant_stays_undecided(client: AsyncClient) -> None:
    body = {"name": "echo", "arguments": {"text": "secret"}}
    asked = (await client.post("/v1/tool-calls", headers=as_holder("alice-key"), json=body)).json()
    path, approve = f"/v1/approvals/{asked['metadata']['approval']['id']}", {"decision": "approve"}
    assert (await client.post(path, headers=ADMIN, json=approve)).status_code == 404
    assert (await client.post(f"{path}?tenant=t1", headers=ADMIN, json=approve)).status_code == 403
    assert "secret" not in (await client.get("/v1/approvals", headers=ADMIN)).text
    decided = await client.post(f"{path}?tenant=t1", headers=BOTH, json=approve)
    assert (decided.status_code, decided.json()["decided_by"]) == (200, "root")


async def test_an_admin_sees_neither_the_keys_of_other_tenants_nor_their_names(client: AsyncClient) -> None:
    def shown(answer: Response) -> dict[str, str]:
        return {item["path"]: item["value"] for item in answer.json()["values"]}

    whole = shown(await client.get("/v1/configuration", headers=BOTH))
    mine = shown(await client.get("/v1/configuration", headers=ADMIN))
    assert (whole["auth.api_keys[0].subject"], whole["auth.api_keys[0].tenant"]) == ("alice", "t1")
    hidden = {path: value for path, value in whole.items() if path not in mine}
    assert {value for value in mine.values() if value in ("alice", "t1")} == set()
    assert all(re.match(r"auth\.api_keys\[0\]|.*\.tenants", path) for path in hidden)


def test_nothing_implies_operator() -> None:
    admin, operator = Principal(scopes=frozenset({"admin"})), Principal(scopes=frozenset({"operator"}))
    assert [admin.has_scope(scope) for scope in ("tools:call", "notes:read", "operator", "delegate")] == [
        True,
        True,
        False,
        False,
    ]
    assert [operator.has_scope(scope) for scope in ("operator", "admin", "tools:read")] == [True, False, False]
