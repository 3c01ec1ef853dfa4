"""`/v1/connections`: who sees which entries, and those of others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient
from tests.credentials.who_server import WhoServer, serving_who

from toolplug import CallContext, FunctionProvider, open_host, tool
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("I38-connections-route")]

BROUGHT = {"from": "credential:search"}
KEYS = [
    {"key": "ada-key", "subject": "ada", "tenant": "acme"},
    {"key": "bot-key", "subject": "bot", "tenant": "acme", "agents": ["one", "other"]},
    {"key": "idle-key", "subject": "idle", "tenant": "acme", "agents": []},
    {"key": "boss-key", "subject": "boss", "tenant": "acme", "scopes": ["admin"]},
    {"key": "away-key", "subject": "ada", "tenant": "umbrella"},
    {"key": "ops-key", "subject": "ops", "tenant": "ops", "scopes": ["operator", "tools:call"]},
]


class Shop(FunctionProvider):
    """Acts as its caller."""

    @tool
    async def mine(self, context: CallContext) -> str:
        """Say whose credential it has."""
        return await context.credential()


@pytest.fixture
def url() -> Iterator[str]:
    with serving_who(WhoServer()) as found:
        yield found


@pytest.fixture
async def client(url: str) -> AsyncGenerator[AsyncClient]:
    def server(at: str = url, **more: Any) -> dict[str, Any]:
        return {"url": at, "user_auth": BROUGHT, **more}

    names = ("shop", "denied", "abroad")
    rules: dict[str, Any] = {"denied": {"policy": "deny"}, "abroad": {"tenants": ["umbrella"]}}
    config: dict[str, Any] = {
        "store": "memory://",
        "auth": {"api_keys": KEYS},
        "providers": {
            name: {"enabled": True, "user_auth": BROUGHT, **({"tools": {"mine": rules[name]}} if name in rules else {})}
            for name in names
        },
        "mcp_servers": {
            "who": server(),
            "closed": server(policy="deny"),
            "far": server(tools={"whoami": {"tenants": ["umbrella"]}}),
            "off": server(enabled=False),
            "unlisted": server("http://127.0.0.1:9/mcp"),
            "shut": server("http://127.0.0.1:9/mcp", policy="deny"),
            "asking": server("http://127.0.0.1:9/mcp", policy={"ask": "caller"}),
        },
        "toolsets": {
            "of_shop": {"prefix": "shop", "from": "provider:shop"},
            "of_who": {"prefix": "who", "from": "mcp:who"},
        },
        "agents": {"one": {"toolsets": ["of_shop"]}, "other": {"toolsets": ["of_who"]}},
    }
    async with open_host(config, providers=dict.fromkeys(names, Shop), environ={}) as host:
        async with asyncio.timeout(30):
            while [view.record.status for view in host.servers.servers("acme")].count("success") < 3:
                await asyncio.sleep(0.02)
        async with AsyncClient(transport=ASGITransport(create_app(host)), base_url="http://localhost") as opened:
            yield opened


async def shown(client: AsyncClient, who: str, **query: str) -> list[str]:
    """The entries that a key is shown."""
    answer = await client.get("/v1/connections", headers={"authorization": f"Bearer {who}-key"}, params=query)
    assert answer.status_code == 200, answer.text
    return [each["server"] for each in answer.json()["connections"]]


async def test_a_caller_is_shown_the_entries_that_it_may_use(client: AsyncClient) -> None:
    assert await shown(client, "ada") == ["shop", "who", "unlisted", "asking"]
    assert await shown(client, "away") == ["shop", "abroad", "who", "far", "unlisted", "asking"]
    assert await shown(client, "bot") == ["shop", "who"]
    assert await shown(client, "idle") == []


async def test_what_a_caller_may_not_use_is_for_it_as_what_does_not_exist(client: AsyncClient) -> None:
    headers = {"authorization": "Bearer ada-key", "x-request-id": "r"}
    for method in ("POST", "DELETE"):
        answers = [await client.request(method, f"/v1/connections/{name}", headers=headers) for name in ("far", "none")]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].json() == answers[1].json()


async def test_an_admin_sees_those_of_its_tenant_and_an_operator_those_of_every_one(client: AsyncClient) -> None:
    assert await shown(client, "boss", caller="ada") == ["shop", "who", "unlisted", "asking"]
    assert await shown(client, "ada", caller="ada") == ["shop", "who", "unlisted", "asking"]
    assert await shown(client, "ops", caller="ada", tenant="umbrella") == [
        "shop",
        "abroad",
        "who",
        "far",
        "unlisted",
        "asking",
    ]
    for who, query in (
        ("ada", {"caller": "boss"}),
        ("boss", {"caller": "ada", "tenant": "umbrella"}),
        ("ops", {"caller": "somebody"}),
    ):
        headers = {"authorization": f"Bearer {who}-key"}
        for method, path in (("GET", "/v1/connections"), ("DELETE", "/v1/connections/who")):
            answer = await client.request(method, path, headers=headers, params=query)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope")


async def test_what_a_request_brings_connects_nobody_but_who_sends_it(client: AsyncClient) -> None:
    async def connected(**query: str) -> set[bool]:
        headers = {"authorization": "Bearer boss-key", "x-toolplug-credential-search": "of-the-boss"}
        answer = await client.get("/v1/connections", headers=headers, params=query)
        return {each["connected"] for each in answer.json()["connections"]}

    assert await connected() == {True}
    assert await connected(caller="ada") == {False}
