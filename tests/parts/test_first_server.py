"""The MCP servers of a host are loaded with the first one, wherever it comes from."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from pathlib import Path

import pytest
from tests.host.plain_server import PlainServer
from tests.http.conftest import client_of

from toolplug import CallContext, Principal, ToolCall, ToolStatus, open_host
from toolplug.catalog.call import HOST_SCOPES
from toolplug.catalog.offering import EMPTY_OFFERING
from toolplug.errors import ApiError, ConfigError
from toolplug.http import create_app
from toolplug.parts.mcp.running import ServerHandle
from toolplug.parts.mcp.server_records import ServerRecord
from toolplug.parts.mcp.servers import servers_of

pytestmark = pytest.mark.anyio

ADMIN = Principal("ada", "t1", frozenset({"admin", "operator"}))
CALLER = Principal("me", "default", frozenset({*HOST_SCOPES, "tools:call", "tools:read"}))
ADA = {"X-API-Key": "ada-key"}
ENTRY = {"url": "https://mcp.example.com/mcp", "enabled": False}


async def test_a_host_without_servers_loads_none() -> None:
    async with open_host({"store": "memory://"}, environ={}) as host:
        assert (host.servers.loaded, list(host.servers.servers("t1")), host.servers.ids(None)) == (None, [], set())
        assert host.servers.catalogs_of("t1") == {}


async def test_a_reload_may_bring_the_first_server(tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text("store: memory://\n", "utf-8")
    async with open_host(file, environ={}, serving=False) as host:
        file.write_text(
            "store: memory://\nmcp_servers: {web: {url: 'https://mcp.example.com/mcp', enabled: false}}\n", "utf-8"
        )
        await host.reload(by=ADMIN)
        assert [(view.id, view.enabled) for view in host.servers.servers("t1")] == [("web", False)]


async def test_the_hosts_code_may_bring_the_first_server() -> None:
    async with open_host({"store": "memory://"}, environ={}) as host:
        host.register_mcp_toolset("web", "web", ENTRY, allow_for=["writer"])
        assert host.servers.ids(None) == {"web"}
        await servers_of(host)
        assert [view.id for view in host.servers.servers("t1")] == ["web"]
        assert host.servers.source("t1", "web", "shared") is host.servers.source("t2", "web", "shared")


@pytest.mark.mcp
async def test_an_open_session_gets_the_tools_of_a_first_server(tmp_path: Path) -> None:
    server = PlainServer(tmp_path / "web", "fetch")
    async with open_host({"store": "memory://", "agents": {"writer": {}}}, environ={}) as host:
        session = (await host.sessions.create(CALLER)).session
        executor = host.executor_for(CALLER, agent="writer", session=session.code)
        host.register_mcp_toolset("web", "web", server.entry, allow_for=["writer"], scope="session")
        assert list(executor.catalog) == []  # before the server is loaded
        async with asyncio.timeout(10):
            while "web.fetch" not in executor.catalog:
                await asyncio.sleep(0.05)
        answers = [await executor.execute(ToolCall(str(n), "web.fetch"), CallContext(CALLER)) for n in range(2)]
        assert [answer.status for answer in answers] == [ToolStatus.SUCCESS] * 2
        assert answers[0].output == answers[1].output  # the same process, that of the session
        tools = host.servers.handle(("web", None))._tools
        assert len(tools.sessions) == 1
        await host.sessions.end(session, CALLER)
        async with asyncio.timeout(10):
            while tools.sessions:
                await asyncio.sleep(0.05)


async def test_a_session_that_ends_before_its_first_server_waits_no_longer() -> None:
    async with open_host({"store": "memory://"}, environ={}) as host:
        handle = host.servers.handle(("web", None))
        executor = handle.sources["session"].make()
        assert handle._waiting == {executor}
        assert (list(executor.catalog), executor.offering) == ([], EMPTY_OFFERING)
        await executor.aclose()
        assert handle._waiting == set()


async def test_the_first_server_of_a_tenant_is_there_again_after_a_start(tmp_path: Path) -> None:
    settings = {"store": f"sqlite:///{tmp_path}/store.db"}
    async with open_host(settings, environ={}) as host:
        record = ServerRecord(id="web", url="https://mcp.example.com/mcp", enabled=False)
        await (await servers_of(host)).add(record, by=ADMIN, request_id="")
    async with open_host(settings, environ={}) as host:
        assert [[view.id for view in host.servers.servers(tenant)] for tenant in ("t1", "t2")] == [["web"], []]


async def test_all_that_need_the_servers_at_once_load_them_once() -> None:
    async with open_host({"store": "memory://"}, environ={}) as host:
        one, other = await asyncio.gather(servers_of(host), servers_of(host))
        assert one is other


async def test_requests_of_a_host_without_servers_load_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolplug.audit")
    auth = {"api_keys": [{"key": "ada-key", "subject": "ada", "scopes": ["admin", "tools:read"]}]}
    async with open_host({"store": "memory://", "auth": auth}, environ={}) as host, client_of(create_app(host)) as http:
        answer = await http.get("/api/mcp-servers", headers=ADA)
        assert (answer.status_code, answer.json()) == (200, {"servers": []})
        for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/discover"), ("POST", "/accept")):
            body = {"enabled": False} if method == "PATCH" else None
            answer = await http.request(method, f"/api/mcp-servers/web{path}", headers=ADA, json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["message"]) == (
                404,
                "server_not_found",
                "no such MCP server",
            )
        assert host.servers.loaded is None
        lines = [json.loads(record.message) for record in caplog.records if record.name == "toolplug.audit"]
        assert [(line["event"], line["outcome"], line["target"]) for line in lines] == [
            (f"mcp_server.{what}", "refused", "_unknown") for what in ("change", "remove", "discover", "accept")
        ]
        added = {"id": "web", "url": "https://mcp.example.com/mcp", "enabled": False}
        await http.post("/api/mcp-servers", headers=ADA, json=added)
        assert (await http.get("/api/mcp-servers/web", headers=ADA)).json()["id"] == "web"


@pytest.fixture
def without_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolplug whose parts have no servers."""
    for module in ("configuration", "part_sections"):
        monkeypatch.setattr(f"toolplug.host.file.{module}.built_in", tuple)
    monkeypatch.setattr("toolplug.host.toolsets.service.built_in", tuple)


@pytest.mark.usefixtures("without_part")
async def test_without_the_part_a_section_of_servers_is_an_unknown_key() -> None:
    with pytest.raises(ConfigError, match="unknown key 'mcp_servers'"):
        async with open_host({"store": "memory://", "mcp_servers": {"web": ENTRY}}, environ={}):
            pass


@pytest.mark.usefixtures("without_part")
async def test_without_the_part_a_host_says_that_it_runs_no_servers() -> None:
    async with open_host({"store": "memory://"}, environ={}) as host:
        with pytest.raises(ConfigError, match="no part of this host runs servers"):
            host.register_mcp_toolset("web", "web", ENTRY)
        with pytest.raises(ApiError, match="no MCP server 'web'"):
            host.register_mcp_toolset("web", "web", "web")
        assert list(host.servers.servers("t1")) == []


async def test_nothing_is_kept_of_a_server_that_was_removed() -> None:
    async with open_host({"store": "memory://"}, environ={}) as host:
        servers = await servers_of(host)
        for number in range(5):
            record = ServerRecord(id=f"web{number}", url="https://mcp.example.com/mcp", enabled=False)
            await servers.add(record, by=ADMIN, request_id="")
            await servers.remove(record.id, by=ADMIN, request_id="")
        gc.collect()
        assert sum(isinstance(each, ServerHandle) for each in gc.get_objects()) == 0
