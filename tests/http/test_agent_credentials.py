"""Credentials that name agents: they are shown what their agent can reach, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from httpx2 import AsyncClient, Response
from tests.http.conftest import ALICE, ROOT, as_holder, client_of, settings
from tests.http.mcp_sources import DEAD_SERVER

from toolplug import FunctionProvider, Host, Principal, open_host, tool
from toolplug.http import create_app, provider_routes

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("C-5-agent-limited")]

ONE = as_holder("one-agent-key")
TWO = as_holder("two-agents-key")
NOBODY = as_holder("no-agent-key")
KEYS = [
    {"key": "alice-key", "subject": "alice"},
    {"key": "root-key", "subject": "root", "scopes": ["admin"]},
    {"key": "one-agent-key", "subject": "one", "agents": ["researcher"]},
    {"key": "two-agents-key", "subject": "two", "agents": ["researcher", "writer"]},
    {"key": "no-agent-key", "subject": "nobody", "agents": []},
    {"key": "free-one-key", "subject": "one"},
]


class Other(FunctionProvider):
    """A provider that only the writer's toolset has."""

    @tool
    async def write(self) -> str:
        """Write."""
        return "written"


@pytest.fixture
async def host(sample_package: None, package: object) -> AsyncIterator[Host]:
    package("toolplug-other", {"other": "tests.http.test_agent_credentials:Other"})  # type: ignore[operator]
    sections = {
        "auth": {"api_keys": KEYS},
        "providers": {"sample": {"enabled": True}, "other": {"enabled": True}},
        "mcp_servers": {"docs": {"url": DEAD_SERVER}, "hidden": {"url": DEAD_SERVER}},
        "toolsets": {
            "docs": {"prefix": "docs", "from": "mcp:docs"},
            "write": {"prefix": "w", "from": "provider:other"},
            "samples": {"prefix": "s", "from": "provider:sample"},
        },
        "agents": {"researcher": {"toolsets": ["docs", "write"]}, "writer": {"toolsets": ["write", "samples"]}},
    }
    async with open_host(settings(**sections), environ={}) as opened:
        yield opened


@pytest.fixture
async def client(host: Host) -> AsyncIterator[AsyncClient]:
    async with client_of(create_app(host)) as opened:
        yield opened


async def names(client: AsyncClient, path: str, member: str, headers: dict[str, str], key: str = "name") -> list[str]:
    answer = await client.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return [item[key] for item in answer.json()[member]]


def code(answer: Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_the_catalog_of_people_is_what_the_agent_can_reach(client: AsyncClient) -> None:
    assert await names(client, "/api/catalog", "tools", ONE) == ["w.write"]
    assert await names(client, "/api/catalog?agent=researcher", "tools", ONE) == ["w.write"]
    assert code(await client.get("/api/catalog?agent=writer", headers=ONE)) == (403, "agent_not_allowed")
    assert code(await client.get("/api/catalog", headers=TWO)) == (400, "agent_required")
    writer = await names(client, "/api/catalog?agent=writer", "tools", TWO)
    assert writer[0] == "w.write"
    assert all(name.startswith("s.") for name in writer[1:])
    everything = await names(client, "/api/catalog", "tools", ALICE)
    assert {"echo", "write", "w.write", "s.echo"} <= set(everything)
    assert await names(client, "/api/catalog?agent=researcher", "tools", ALICE) == ["w.write"]
    assert await names(client, "/api/catalog?agent=unknown", "tools", ALICE) == []


async def test_providers_and_servers_are_those_behind_its_toolsets(client: AsyncClient) -> None:
    assert await names(client, "/v1/providers", "providers", ONE, "key") == ["other"]
    assert await names(client, "/v1/providers", "providers", TWO, "key") == ["sample", "other"]
    assert set(await names(client, "/v1/providers", "providers", ALICE, "key")) >= {"sample", "other"}
    assert await names(client, "/api/mcp-servers", "servers", ONE, "id") == ["docs"]
    assert await names(client, "/api/mcp-servers", "servers", ALICE, "id") == ["docs", "hidden"]
    assert (await client.get("/api/mcp-servers/docs", headers=ONE)).status_code == 200
    hidden, unknown = [await client.get(f"/api/mcp-servers/{name}", headers=ONE) for name in ("hidden", "hiddem")]
    assert code(hidden) == code(unknown) == (404, "server_not_found")
    assert hidden.json()["error"]["message"] == unknown.json()["error"]["message"]


async def test_what_the_agent_loses_is_gone_at_once(client: AsyncClient) -> None:
    await client.put("/api/agents/researcher/toolsets", headers=ROOT, json={"toolsets": ["samples"]})
    assert await names(client, "/v1/providers", "providers", ONE, "key") == ["sample"]
    assert await names(client, "/api/mcp-servers", "servers", ONE, "id") == []
    assert (await client.get("/v1/samples", headers=ONE)).status_code == 200


async def test_routes_of_a_provider_need_a_toolset_of_it(client: AsyncClient) -> None:
    for headers, status in ((ONE, 403), (NOBODY, 403), (TWO, 200), (ALICE, 200)):
        assert (await client.get("/v1/samples", headers=headers)).status_code == status
    assert code(await client.get("/v1/samples", headers=ONE)) == (403, "agent_not_allowed")


async def test_routes_of_a_registry_alone_are_for_no_agent(host: Host) -> None:
    async def authenticate(connection: object) -> Principal:
        return Principal("one", scopes=frozenset({"tools:call"}), agents=frozenset({"writer"}))

    async with client_of(provider_routes(host.registry, auth=authenticate)) as client:
        assert code(await client.get("/v1/samples")) == (403, "agent_not_allowed")


async def test_an_empty_list_of_agents_is_nothing_everywhere(client: AsyncClient) -> None:
    for path, member in [
        ("/v1/tools", "tools"),
        ("/api/catalog", "tools"),
        ("/v1/providers", "providers"),
        ("/api/mcp-servers", "servers"),
        ("/api/toolsets", "toolsets"),
    ]:
        assert (await client.get(path, headers=NOBODY)).json()[member] == [], path
    assert code(await client.get("/v1/tools?agent=writer", headers=NOBODY)) == (403, "agent_not_allowed")
    for name in ("write", "w.write"):
        called = await client.post("/v1/tool-calls", headers=NOBODY, json={"name": name})
        assert called.json()["status"] == "unknown_tool"
    created = await client.post("/api/sessions", headers=ALICE)
    listed = await client.get(f"/v1/tools?session={created.json()['code']}", headers=NOBODY)
    assert listed.json() == {"tools": []}
    mcp = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    begun = await client.post("/mcp", headers=NOBODY, json=mcp)
    headers = {**NOBODY, "Mcp-Session-Id": begun.headers["Mcp-Session-Id"]}
    answer = await client.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    assert answer.json()["result"]["tools"] == []


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


async def test_saved_toolsets_show_no_tool_that_the_agent_cannot_reach(client: AsyncClient) -> None:
    free = as_holder("free-one-key")  # the same subject, whose saved toolsets they are
    tools = [{"namespacedName": "write"}, {"namespacedName": "echo"}]
    note = {"toolRef": {"namespacedName": "echo"}, "notes": [{"name": "hint", "note": "loud"}]}
    for name, chosen in (("mine", tools), ("agents", [{"namespacedName": "w.write"}])):
        query = "?agent=researcher" if name == "agents" else ""
        built = await client.post(f"/api/toolsets{query}", headers=free, json={"name": name, "tools": chosen})
        assert built.status_code == 201, built.text
    assert (await client.post("/api/toolsets/mine/notes", headers=free, json=note)).status_code == 200
    shown = (await client.get("/api/toolsets", headers=ONE)).json()["toolsets"]
    assert {line["name"]: line["toolCount"] for line in shown} == {"agents": 1, "mine": 0}
    assert (await client.get("/api/toolsets/agents", headers=ONE)).json()["tools"][0]["namespacedName"] == "w.write"
    for path in ("/api/toolsets/mine", "/api/toolsets/mine/export"):
        answer = await client.get(path, headers=ONE)
        assert (answer.json()["tools"], answer.json().get("toolNotes", [])) == ([], []), path
    equipped = await client.post("/api/toolsets/mine/equip", headers=ONE)
    assert equipped.json()["tools"] == []
    assert (await client.get("/api/toolsets/active", headers=ONE)).json()["tools"] == []
