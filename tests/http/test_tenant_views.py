"""`tenant=`: the tools and sessions of another tenant, as `admin` sees them."""

from __future__ import annotations

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE, BOB, ROOT, client_of, settings

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I16-1-whose")]

RULES = {"echo": {"tenants": ["t1"]}}
PATHS = ("/api/catalog", "/v1/tools?format=mcp", "/v1/explain?tool=echo", "/api/sessions")


async def names(client: AsyncClient, path: str, headers: dict[str, str] = ROOT) -> set[str]:
    return {item["name"] for item in (await client.get(path, headers=headers)).json()["tools"]}


async def test_admin_sees_the_tools_and_sessions_of_a_tenant_and_others_only_their_own(sample_package: None) -> None:
    providers = {"sample": {"enabled": True, "tools": RULES}}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        for path in ("/api/catalog?", "/v1/tools?format=mcp&"):
            assert "echo" not in await names(client, path)
            assert "echo" not in await names(client, f"{path}tenant=t2")
            assert "echo" in await names(client, f"{path}tenant=t1")
            assert "echo" in await names(client, f"{path}tenant=t1", ALICE)
        explained = [
            (await client.get(f"/v1/explain?tool=echo{tenant}", headers=ROOT)).json()["callable"]
            for tenant in ("", "&tenant=t1")
        ]
        session = (await client.post("/api/sessions", json={"pluginType": "table"}, headers=ALICE)).json()["code"]
        listed = [
            [each["code"] for each in (await client.get(f"/api/sessions{tenant}", headers=ROOT)).json()["sessions"]]
            for tenant in ("", "?tenant=t1")
        ]
        of_session = f"session={session}&tenant=t1"
        in_session = [
            (await client.get(f"{path}{'&' if '?' in path else '?'}{of_session}", headers=ROOT)).status_code
            for path in PATHS[:3]
        ]
        refused = [
            (await client.get(f"{path}{'&' if '?' in path else '?'}tenant=t1", headers=BOB)).status_code
            for path in PATHS
        ]
    assert explained == [False, True]
    assert listed == [[], [session]]
    assert in_session == [200, 200, 200]
    assert refused == [403, 403, 403, 403]


async def test_a_route_that_takes_no_tenant_is_not_answered_for_the_caller_s_own(sample_package: None) -> None:
    asked = [
        ("PUT", "/api/agents/clerk/toolsets?tenant=t2", {"toolsets": []}),
        ("GET", "/v1/tools/stream?tenant=t2", None),
        ("GET", "/v1/tools/stream?t%65nant=t2", None),
        ("GET", "/v1/providers?tenants=all", None),
        ("DELETE", "/api/toolsets/box?tenant=t2", None),
    ]
    async with open_host(settings(), environ={}) as host, client_of(create_app(host)) as client:
        for method, path, body in asked:
            for headers, expected in ((ALICE, (403, "insufficient_scope")), (ROOT, (400, "invalid_request"))):
                answer = await client.request(method, path, json=body, headers=headers)
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == expected, (method, path)
        own = await client.get("/v1/providers?tenant=t1", headers=ALICE)
    assert own.status_code == 200


@pytest.mark.parametrize(("path", "key"), [("/v1/approvals", "approvals"), ("/v1/grants", "grants")])
async def test_tickets_and_grants_are_those_of_one_tenant_or_of_all(sample_package: None, path: str, key: str) -> None:
    grants = {"policy": "ask", "grants": {"most": "8h", "scope": "caller"}}
    providers = {"sample": {"enabled": True, "tools": {"echo": grants}}}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        body = {"name": "echo", "arguments": {"text": "a"}}
        asked = (await client.post("/v1/tool-calls", json=body, headers=ALICE)).json()["metadata"]["approval"]["id"]
        decision = {"decision": "approve", "grant": {"scope": "caller", "for": "1h"}}
        decided = await client.post(f"/v1/approvals/{asked}?tenant=t1", json=decision, headers=ROOT)
        assert decided.status_code == 200, decided.text
        shown = [
            [each["tenant"] for each in (await client.get(f"{path}{query}", headers=ROOT)).json()[key]]
            for query in ("", "?tenant=t1", "?tenant=t2", "?tenants=all")
        ]
        wrong = await client.get(f"{path}?tenants=t1", headers=ROOT)
        asks = ("tenant=t1", "tenants=all")
        refused = [(await client.get(f"{path}?{query}", headers=BOB)).status_code for query in asks]
    assert shown == [[], ["t1"], [], ["t1"]]
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "tenants")
    assert refused == [403, 403]
