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
