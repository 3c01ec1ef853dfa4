"""The host as an MCP server in both eras of the protocol, and the MCP servers behind it."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.golden.conftest import DESK, KEYS, Opened
from tests.golden.wire import Talk, Wire
from tests.host.plain_server import PlainServer

pytestmark = pytest.mark.anyio

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
ACCEPTED = {"accept": "application/json, text/event-stream"}
INTRODUCTION = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
TOOLSETS = """
toolsets: {office: {prefix: office, from: provider:desk}}
agents: {researcher: {toolsets: [office]}, writer: {}}
"""
SERVERS = "/api/mcp-servers"
CLOSED = "http://127.0.0.1:9/mcp"


def message(method: str, params: object = None, number: object = 1) -> dict[str, object]:
    fields = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return {name: value for name, value in fields.items() if value is not None}


class Era:
    """Sends messages as a client of one era does."""

    def __init__(self, wire: Wire, path: str, headers: dict[str, str], *, modern: bool) -> None:
        self.wire = wire
        self.path = path
        self.headers = headers
        self.modern = modern

    async def say(self, method: str, number: object = 1, /, by: str = "alice-key", **params: Any) -> Talk:
        headers, body = self.headers, message(method, params or None, number)
        if self.modern:
            headers = headers | {"mcp-method": method}
            if "name" in params:
                headers["mcp-name"] = params["name"]
            meta = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            body = message(method, params | {"_meta": meta | params.get("_meta", {})}, number)
        return await self.wire.post(self.path, by, body, headers=headers)


async def introduced(wire: Wire, path: str = "/mcp") -> Era:
    """A client of the older era that has introduced itself."""
    answer = await wire.post(path, "alice-key", message("initialize", INTRODUCTION), headers=ACCEPTED)
    session = answer.header("mcp-session-id")
    wire.transcript.number(session, "mcp session")
    era = Era(wire, path, ACCEPTED | {"mcp-session-id": session, "mcp-protocol-version": LEGACY}, modern=False)
    await era.say("notifications/initialized", None)
    return era


async def conversation(era: Era) -> None:
    """What both eras understand."""
    await era.say("ping")
    await era.say("tools/list", "text id")
    await era.say("tools/list", cursor="none")
    for name, arguments in (
        ("echo", {"text": "otters"}),
        ("echo", {}),
        ("values", {}),
        ("fails", {}),
        ("panics", {}),
        ("away", {}),
        ("nope", {}),
    ):
        await era.say("tools/call", name=name, arguments=arguments)
    await era.say("tools/call", name="counts", arguments={"upto": 2}, _meta={"progressToken": "p"})
    await era.say("tools/dance")
    await era.say("prompts/list")
    await era.say("resources/list")
    await era.say("notifications/anything", None)


async def test_the_endpoint_of_mcp(opened: Opened) -> None:
    async with opened("mcp", KEYS + DESK + TOOLSETS) as wire:
        wire.title("2025-11-25")
        legacy = await introduced(wire)
        await conversation(legacy)
        async with wire.stream("/mcp", "alice-key", **_named(legacy.headers)) as listening:
            while listening.status == 0:
                await asyncio.sleep(0)
        await wire.ask("DELETE", "/mcp", "alice-key", headers=legacy.headers)
        await legacy.say("ping")
        wire.title("2026-07-28")
        modern = Era(wire, "/mcp", ACCEPTED | {"mcp-protocol-version": MODERN}, modern=True)
        await modern.say("server/discover")
        await conversation(modern)
        wire.title("Agents")
        agent = Era(wire, "/mcp?agent=researcher", modern.headers, modern=True)
        await agent.say("tools/list")
        await agent.say("tools/call", name="office.echo", arguments={"text": "x"})
        await Era(wire, "/mcp?agent=other", modern.headers, modern=True).say("tools/list", by="one-agent-key")
        wire.title("Refusals")
        for body in (
            b"{",
            b"[]",
            b"{}",
            b'{"jsonrpc":"2.0","id":1,"result":{}}',
            b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        ):
            await wire.post("/mcp", "alice-key", body, headers=ACCEPTED)
        await wire.post("/mcp", "alice-key", message("tools/list"), headers=ACCEPTED)
        await wire.post("/mcp", "alice-key", message("tools/list"), headers=ACCEPTED | {"mcp-session-id": "nobody"})
        await wire.post("/mcp", "alice-key", message("initialize", INTRODUCTION), headers={"accept": "text/html"})
        await wire.post("/mcp", "alice-key", message("ping"), headers=ACCEPTED | {"content-type": "text/plain"})
        await wire.get("/mcp", "alice-key")
        await wire.ask("DELETE", "/mcp", "alice-key")
        old = {"mcp-protocol-version": "1999-01-01"}
        await wire.post("/mcp", "alice-key", message("tools/list"), headers=ACCEPTED | old)
        await modern.say("tools/list", by="reader-key")


async def test_the_endpoint_of_a_session(opened: Opened) -> None:
    async with opened("session_mcp") as wire:
        created = (await wire.post("/api/sessions", "alice-key")).json()
        place = f"/api/sessions/{created['code']}"
        tools = [{"name": "add", "inputSchema": {"type": "object"}}, {"name": "files/read.all"}]
        await wire.post(f"{place}/register-tools", created["pluginToken"], {"pluginType": "table", "tools": tools})
        legacy = await introduced(wire, f"{place}/mcp")
        await legacy.say("tools/list")
        async with wire.stream(f"{place}/stream", created["pluginToken"]) as application:
            await application.until("plugin-status")
            modern = Era(wire, f"{place}/mcp", ACCEPTED | {"mcp-protocol-version": MODERN}, modern=True)
            calling = asyncio.create_task(modern.say("tools/call", name="add", arguments={}))
            request = (await application.until("tool-request"))["id"]
            wire.transcript.number(request, "request")
            await wire.post(f"{place}/tool-results", created["pluginToken"], {"id": request, "result": {"sum": 3}})
            await calling
        await modern.say("tools/call", name="whoami", arguments={})
        for path, by in ((f"{place}/mcp", "bob-key"), ("/api/sessions/ABCDEFGH/mcp", "alice-key")):
            await wire.post(path, by, message("initialize", INTRODUCTION), headers=ACCEPTED)
        await wire.post(f"{place}/mcp", created["pluginToken"], message("ping"), headers=ACCEPTED)
        await wire.ask("DELETE", place, "alice-key")
        await legacy.say("tools/list")


@pytest.mark.mcp
async def test_servers_and_the_catalog(opened: Opened, tmp_path: Path) -> None:
    plain = PlainServer(tmp_path / "plain", "copy", "move_file", "drop")
    servers = {
        "plain": {**plain.entry, "env": {"TOKEN": "s3cret"}, "tools": {"drop": "deny"}},
        "closed": {"url": CLOSED, "headers": {"X-Token": "s3cret"}, "discovery_timeout": "5s"},
        "off": {"url": "https://mcp.example/mcp", "enabled": False},
    }
    toolsets = {"files": {"prefix": "files", "from": "mcp:plain"}}
    agents = {"researcher": {"toolsets": ["files"]}, "writer": {}}
    more = yaml.safe_dump(
        {"mcp_servers": servers, "toolsets": toolsets, "agents": agents, "egress": {"allow": ["loopback"]}}
    )
    async with opened("mcp_servers", KEYS + DESK + more) as wire:
        wire.transcript.hide(sys.executable, "<python>")
        wire.title("Of the file")
        for server in ("plain", "closed", "off", "none"):
            await wire.post(f"{SERVERS}/{server}/discover?wait=true", "root-key")
        await wire.get(SERVERS, "root-key")
        await wire.get(f"{SERVERS}/plain", "alice-key")
        await wire.get(f"{SERVERS}/none", "alice-key")
        catalog = await wire.get("/api/catalog", "alice-key")
        wire.transcript.number(catalog.header("etag"), "etag")
        await wire.get("/v1/tools?agent=researcher", "alice-key")
        body = {"id": "c1", "name": "files.copy", "arguments": {"text": "x"}, "agent": "researcher"}
        called = await wire.post("/v1/tool-calls", "alice-key", body)
        wire.transcript.hide(str(re.findall(r'pid\\": (\d+)', called.text)[0]), "<pid>")
        await wire.post("/v1/tool-calls", "alice-key", body | {"name": "files.drop"})
        await wire.post("/v1/tool-calls", "alice-key", body | {"arguments": {"text": 1}})
        await wire.ask("PATCH", f"{SERVERS}/plain", "root-key", body={"tools": {"copy": "ask"}})
        await wire.ask("PATCH", f"{SERVERS}/plain", "root-key", body={"url": CLOSED})
        await wire.ask("PATCH", f"{SERVERS}/plain", "root-key", body={})
        await wire.post(f"{SERVERS}/plain/accept", "root-key", {})
        await wire.post(f"{SERVERS}/plain/accept", "root-key", {"tools": ["copy"]})
        await wire.ask("DELETE", f"{SERVERS}/plain", "root-key")
        wire.title("Added over HTTP")
        await wire.post(f"{SERVERS}?wait=true", "root-key", {"id": "far", "url": CLOSED, "headers": {"X-Key": "k3y"}})
        await wire.post(SERVERS, "root-key", {"id": "far", "url": CLOSED})
        for body in (
            {},
            {"id": "Far", "url": CLOSED},
            {"id": "new", "url": "http://10.0.0.1/mcp"},
            {"id": "new", "url": "ftp://mcp.example/"},
            {"id": "new", "url": "nowhere"},
            {"id": "new", "command": "uvx"},
            {"id": "new", "url": CLOSED, "policy": "maybe"},
            {"id": "new", "url": CLOSED, "discoveryTimeoutMs": 0},
            {"id": "plain", "url": CLOSED},
        ):
            await wire.post(SERVERS, "root-key", body)
        await wire.ask("PATCH", f"{SERVERS}/far", "root-key", body={"enabled": False, "policy": "deny"})
        await wire.ask("PATCH", f"{SERVERS}/none", "root-key", body={"enabled": False})
        await wire.get(f"{SERVERS}/far", "alice-key")
        await wire.get(f"{SERVERS}/far", "bob-key")
        catalog = await wire.get("/api/catalog", "bob-key")
        wire.transcript.number(catalog.header("etag"), "etag")
        await wire.get("/api/catalog?session=ABCDEFGH", "alice-key")
        for _ in range(2):
            await wire.ask("DELETE", f"{SERVERS}/far", "root-key")


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in headers.items()}
