"""`GET /api/catalog`: every tool that there is, read from memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from pydantic import TypeAdapter
from tests.host.plain_server import PlainServer
from tests.http.conftest import ALICE, BOB, ROOT, as_holder, client_of, settings
from tests.http.mcp_sources import DEAD_SERVER, sample_server
from tests.http.session_plugin import Plugin
from tests.http.session_plugin import tool as session_tool

from toolplug import (
    CallContext,
    FunctionProvider,
    FunctionRegistry,
    Host,
    ToolCall,
    ToolDefinition,
    ToolResult,
    open_host,
    tool,
)
from toolplug.catalog.definition import ToolHints
from toolplug.http import create_app
from toolplug.http.catalog import CatalogAnswer

pytestmark = [pytest.mark.anyio, pytest.mark.process]

Info = dict[str, Any]


class Shy(FunctionProvider):
    """Two tools, one of which people need not see."""

    @tool
    async def plain(self) -> str:
        """Say it."""
        return "plain"

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        return ToolResult(output=call.name)

    def tools(self) -> Sequence[ToolDefinition]:
        return [*super().tools(), ToolDefinition(name="inner", hints=ToolHints(internal=True))]


@pytest.fixture
def source(sample_package: None) -> Iterator[str]:
    with sample_server() as address:
        yield address


@pytest.fixture
async def host(source: str) -> AsyncIterator[Host]:
    sections = {
        "mcp_servers": {
            "docs": {"url": source, "tools": {"whoami": "deny"}},
            "loose": {"url": source},
            "dead": {"url": DEAD_SERVER},
        },
        "toolsets": {"web": {"prefix": "web", "from": "mcp:docs"}, "own": {"prefix": "own", "from": "provider:sample"}},
    }
    async with open_host(settings(**sections), environ={}) as opened:
        yield opened


@pytest.fixture
async def client(host: Host) -> AsyncIterator[AsyncClient]:
    async with client_of(create_app(host)) as opened:
        for name in ("docs", "loose", "dead"):
            await opened.post(f"/api/mcp-servers/{name}/discover?wait=true", headers=ROOT)
        yield opened


async def infos(client: AsyncClient, query: str = "", headers: dict[str, str] = ALICE) -> dict[str, Info]:
    answer = await client.get(f"/api/catalog{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    TypeAdapter(CatalogAnswer).validate_python(answer.json())
    tools = answer.json()["tools"]
    named = {info["name"]: info for info in tools}
    assert len(named) == len(tools)
    return named


@pytest.mark.requirement("C-8-catalog", "C-8-catalog-uncallable", "DISC-catalog-fields", "DISC-catalog-name")
async def test_every_tool_is_listed_with_its_source_and_whether_it_can_be_called(client: AsyncClient) -> None:
    found = await infos(client)
    assert found["echo"] == {
        "name": "echo",
        "description": "Say it again.",
        "type": "native",
        "callable": True,
        "verdict": "passes",
        "configuredPolicy": "allow",
        "discoveryStatus": None,
        "lastDiscovered": None,
        "stale": False,
    }
    assert (found["own.echo"]["toolset"], found["own.echo"]["type"]) == ("own", "native")
    web = found["web.echo"]
    assert web.pop("lastDiscovered").endswith("Z")
    assert web == {
        "name": "web.echo",
        "description": "Say it again.",
        "type": "mcp",
        "server": "docs",
        "toolset": "web",
        "callable": False,
        "verdict": "refuses",
        "reason": "no agent may use its toolset 'web': put it on the allowlist of one (agents.NAME.toolsets)",
        "configuredPolicy": "allow",
        "discoveryStatus": "success",
        "stale": False,
    }
    assert (found["web.whoami"]["callable"], found["web.whoami"]["configuredPolicy"]) == (False, "deny")
    loose = found["loose/echo"]
    assert (loose["server"], loose["callable"], loose["configuredPolicy"]) == ("loose", False, "allow")
    assert "toolset" not in loose
    assert not any(name.startswith(("docs/", "dead")) for name in found)


@pytest.mark.requirement("C-8-catalog")
async def test_a_client_that_has_the_page_is_told_so_until_it_changes(client: AsyncClient) -> None:
    first = await client.get("/api/catalog", headers=ALICE)
    etag = first.headers["etag"]
    assert first.headers["cache-control"] == "private, no-cache"
    same = await client.get("/api/catalog", headers={**ALICE, "If-None-Match": etag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    change = {"tools": {"echo": "deny"}}
    await client.patch("/api/mcp-servers/docs", json=change, headers=ROOT)
    after = await client.get("/api/catalog", headers={**ALICE, "If-None-Match": etag})
    assert (after.status_code, after.headers["etag"] != etag) == (200, True)


LISTED_AGAIN_S = 0.6
"""Twice as long as a list that may have changed waits before it is asked for."""


@pytest.mark.requirement("DISC-api-fast")
async def test_the_pages_of_the_configuration_start_no_process_and_open_no_connection(tmp_path: Path) -> None:
    connections: list[asyncio.StreamWriter] = []

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        writer.close()

    plain = PlainServer(tmp_path / "plain", "read")
    async with await asyncio.start_server(connected, "127.0.0.1", 0) as listening:
        remote = {"url": f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"}
        servers = {"files": plain.entry, "remote": remote}
        async with (
            open_host(settings(providers=None, mcp_servers=servers), environ={}) as host,
            client_of(create_app(host)) as client,
        ):
            for name in servers:
                await client.post(f"/api/mcp-servers/{name}/discover?wait=true", headers=ROOT)
            plain.lists("read", "grown")
            before = (list(plain.starts), len(connections))
            for path in ("/api/catalog", "/api/mcp-servers", "/api/mcp-servers/files", "/api/mcp-servers/remote"):
                assert (await client.get(path, headers=ROOT)).status_code == 200
            await asyncio.sleep(LISTED_AGAIN_S)
            assert (list(plain.starts), len(connections)) == before
            assert list(await infos(client, headers=ROOT)) == ["files/read"]


@pytest.mark.requirement("C-8-catalog", "DISC-session-live", "DISC-api-unknown")
async def test_a_sessions_tools_are_listed_for_its_tenant(client: AsyncClient) -> None:
    created = (await client.post("/api/sessions", json={}, headers=ALICE)).json()
    plugin = Plugin(client, created)
    await plugin.register(session_tool("table.sort", description="Sort it."))
    found = await infos(client, f"?session={plugin.code}")
    assert found["table.sort"] == {
        "name": "table.sort",
        "description": "Sort it.",
        "type": "session",
        "callable": True,
        "verdict": "passes",
        "configuredPolicy": "allow",
        "discoveryStatus": None,
        "lastDiscovered": None,
        "stale": False,
    }
    assert "table.sort" not in await infos(client)
    foreign = await client.get(f"/api/catalog?session={plugin.code}", headers=BOB)
    unknown = await client.get("/api/catalog?session=AAAAAAAA", headers=BOB)
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.json()["error"]["code"] == "session_not_found"
    malformed = await client.get("/api/catalog?session=nope", headers=BOB)
    assert (malformed.status_code, malformed.json()["error"]["code"]) == (400, "invalid_session_code")


@pytest.mark.requirement("C-8-catalog", "C-5-scope-read")
async def test_the_catalog_is_for_readers(client: AsyncClient) -> None:
    assert "web.echo" in await infos(client, headers=as_holder("reader-key"))
    assert (await client.get("/api/catalog", headers=as_holder("caller-key"))).status_code == 403
    assert (await client.get("/api/catalog")).status_code == 401


@pytest.mark.requirement("C-8-catalog", "H-trust-one-answer")
async def test_a_tenants_own_servers_are_in_its_catalog_alone(client: AsyncClient, source: str) -> None:
    await client.post("/api/mcp-servers?wait=true", json={"id": "mine", "url": source}, headers=ROOT)
    assert "mine/echo" not in await infos(client)


@pytest.mark.requirement("C-8-catalog-fast", "DISC-no-start", "DISC-no-executor", "DISC-undiscovered")
async def test_reading_the_catalog_starts_no_server_and_makes_no_executor(tmp_path: Path) -> None:
    web, made = PlainServer(tmp_path / "web", "fetch"), list[str]()

    def opened() -> FunctionRegistry:
        made.append("opened")
        return FunctionRegistry({"shy": Shy()})

    sections = {
        "mcp_servers": {"web": web.entry, "off": {**web.entry, "enabled": False}},
        "toolsets": {"own": {"prefix": "own", "from": "mcp:web", "scope": "session"}},
    }
    host = open_host(settings(providers=None, **sections), environ={})
    host.register_toolset("made", "made", opened, [ToolDefinition(name="plain")])
    async with host, client_of(create_app(host)) as client:
        await client.post("/api/mcp-servers/web/discover?wait=true", headers=ROOT)
        starts = list(web.starts)
        code = (await client.post("/api/sessions", json={}, headers=ALICE)).json()["code"]
        for query in ("", "", f"?session={code}"):
            assert list(await infos(client, query)) == ["own.fetch", "made.plain"]
        assert (made, web.starts, web.runs()) == ([], starts, False)


@pytest.mark.requirement("C-8-catalog-internal", "DISC-internal-hidden")
async def test_tools_that_are_marked_internal_are_left_out() -> None:
    host = open_host(settings(providers=None), environ={})
    async with FunctionRegistry({"shy": Shy()}) as shy:
        host.register_toolset("shy", "shy", shy)
        async with host, client_of(create_app(host)) as client:
            assert list(shy.catalog) == ["plain", "inner"]
            assert list(await infos(client)) == ["shy.plain"]
