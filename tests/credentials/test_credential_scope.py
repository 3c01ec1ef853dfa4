"""Two people behind one API key, who bring credentials of their own: neither gets what was kept for the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient
from tests.mcp.test_transport import INTRODUCTION, LEGACY, message

from toolplug import CallContext, FunctionProvider, Host, open_host, tool
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I38-scope")]

KEYS = [
    {"key": "app-key", "subject": "app", "scopes": ["tools:call", "tools:read", "sessions:write"]},
    {"key": "judge-key", "subject": "judge", "scopes": ["approvals:write"]},
]
SHOP = {
    "enabled": True,
    "user_auth": {"from": "credential:search"},
    "limits": {"max_result_bytes": 100, "artifacts": True},
    "tools": {"order": {"policy": "ask", "grants": {"most": "1h", "scope": "caller", "any": True}}},
}
ADA, BEN = "of-ada", "of-ben"


class Shop(FunctionProvider):
    """Acts as its caller."""

    @tool
    async def mine(self, context: CallContext) -> str:
        """Say whose credential it has."""
        return await context.credential()

    @tool
    async def long(self, context: CallContext) -> str:
        """Say it often."""
        return await context.credential() * 100

    @tool
    async def order(self, context: CallContext) -> str:
        """Order something."""
        return await context.credential()


@pytest.fixture
async def host() -> AsyncGenerator[Host]:
    config = {"store": "memory://", "auth": {"api_keys": KEYS}, "providers": {"shop": SHOP}}
    async with open_host(config, providers={"shop": Shop}, environ={}) as opened:
        yield opened


@pytest.fixture
async def client(host: Host) -> AsyncGenerator[AsyncClient]:
    async with AsyncClient(transport=ASGITransport(create_app(host)), base_url="http://localhost") as opened:
        yield opened


def bring(credential: str) -> dict[str, str]:
    """The headers of a request of the application for one of its users; empty: for none."""
    brought = {"x-toolplug-credential-search": credential} if credential else {}
    return {"authorization": "Bearer app-key", **brought}


async def call(client: AsyncClient, credential: str, name: str, /, **body: Any) -> dict[str, Any]:
    asked = {"id": "c1", "name": name, **body}
    return (await client.post("/v1/tool-calls", json=asked, headers=bring(credential))).json()


async def test_a_long_result_is_read_on_by_who_brings_the_same(client: AsyncClient) -> None:
    kept = await call(client, ADA, "long")
    handle = {"handle": kept["metadata"]["truncated"]["handle"]}
    assert (await call(client, ADA, "read_result", arguments=handle))["output"].startswith(ADA)
    for other in (BEN, ""):
        foreign = await call(client, other, "read_result", arguments=handle)
        assert (foreign["status"], foreign["output"].count("no artifact")) == ("tool_error", 1)


async def test_a_queued_result_is_for_who_brings_the_same_and_its_call_has_the_credential(client: AsyncClient) -> None:
    code = (await client.post("/api/sessions", headers=bring(""))).json()["code"]
    place = f"/api/sessions/{code}/tool-calls"
    taken = (await client.post(place, json={"tool": "mine", "wait": False}, headers=bring(ADA))).json()["id"]
    async with asyncio.timeout(10):
        while (state := (await client.get(f"{place}/{taken}", headers=bring(ADA))).json())["status"] != "done":
            await asyncio.sleep(0.01)
    assert state["result"]["output"] == ADA
    for other in (BEN, ""):
        assert (await client.get(f"{place}/{taken}", headers=bring(other))).status_code == 404


async def test_an_approval_of_a_call_is_not_used_for_another_person(client: AsyncClient) -> None:
    async def ask(credential: str, **body: str) -> dict[str, Any]:
        return await call(client, credential, "order", **body)

    ticket = (await ask(ADA))["metadata"]["approval"]["id"]
    decided = {"authorization": "Bearer judge-key"}
    body = {"decision": "approve"}
    assert (await client.post(f"/v1/approvals/{ticket}", json=body, headers=decided)).status_code == 200
    other = await ask(BEN)
    assert (other["status"], other["metadata"]["approval"]["id"] == ticket) == ("denied", False)
    assert (await ask(BEN, approval=ticket))["status"] == "denied"
    assert (await ask(ADA, approval=ticket))["output"] == ADA


@pytest.mark.parametrize("more", [{}, {"calls": 9}, {"arguments": True}])
async def test_a_grant_allows_the_calls_of_who_brings_the_same(client: AsyncClient, more: dict[str, object]) -> None:
    async def grant_to(credential: str) -> str:
        ticket = (await call(client, credential, "order"))["metadata"]["approval"]["id"]
        body = {"decision": "approve", "grant": {"scope": "caller", "for": "1h", **more}}
        decided = {"authorization": "Bearer judge-key"}
        made = (await client.post(f"/v1/approvals/{ticket}", json=body, headers=decided)).json()
        assert (await call(client, credential, "order"))["status"] == ("success" if credential else "unavailable")
        return str(made["grant"])

    of_ada = await grant_to(ADA)
    for _ in range(2):
        assert (await call(client, ADA, "order"))["metadata"]["granted_by"] == of_ada
        for other in (BEN, ""):
            assert (await call(client, other, "order"))["status"] == "denied"
    await grant_to("")
    assert (await call(client, "", "order"))["status"] == "unavailable"
    assert (await call(client, BEN, "order"))["status"] == "denied"
    assert (await call(client, ADA, "order"))["metadata"]["granted_by"] == of_ada


async def test_calls_of_one_idempotency_key_have_ids_of_their_own(client: AsyncClient) -> None:
    async def ask(credential: str) -> str:
        headers = {**bring(credential), "idempotency-key": "k"}
        answer = (await client.post("/v1/tool-calls", json={"name": "mine"}, headers=headers)).json()
        assert answer["output"] == credential
        return answer["call_id"]

    assert await ask(ADA) == await ask(ADA) != await ask(BEN)


@pytest.mark.mcp
async def test_an_mcp_session_is_of_who_brings_the_same(client: AsyncClient) -> None:
    accept = {"accept": "application/json, text/event-stream"}
    begun = await client.post("/mcp", json=message("initialize", INTRODUCTION), headers={**accept, **bring(ADA)})
    known = {**accept, "mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": LEGACY}
    asked = message("tools/list")
    assert (await client.post("/mcp", json=asked, headers={**known, **bring(ADA)})).status_code == 200
    for other in (BEN, ""):
        assert (await client.post("/mcp", json=asked, headers={**known, **bring(other)})).status_code == 404
