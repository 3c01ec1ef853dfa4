"""The open routes, the refusals that every route shares, and who may come in."""

from __future__ import annotations

import pytest
from tests.golden.conftest import DESK, KEYS, Opened
from tests.golden.wire import ABSENT

pytestmark = pytest.mark.anyio

FOREIGN = {"origin": "https://evil.example"}
LISTED = {"origin": "https://app.example"}
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
HTTP = """
http: {allowed_hosts: [tools.example], allowed_origins: ["https://app.example"], max_body: 500}
"""
TOOL_CALLS = "/v1/tool-calls"


async def test_the_open_routes(opened: Opened) -> None:
    async with opened("open_routes") as wire:
        for path in ("/healthz", "/readyz", "/"):
            await wire.get(path)
            await wire.ask("HEAD", path)
        await wire.get("/toolplug.js", records=False)
        await wire.get("/healthz", headers={"x-request-id": ABSENT})
        await wire.get("/healthz", headers={"x-request-id": "not a request id"})
        await wire.get("/metrics")
        await wire.ask("HEAD", "/toolplug.js")


async def test_the_description_of_every_route(opened: Opened) -> None:
    async with opened("openapi") as wire:
        await wire.get("/openapi.json")


async def test_a_host_that_is_not_ready(opened: Opened) -> None:
    broken = "providers: {desk: {enabled: true, required: false, fails: true}}"
    async with opened("not_started", entered=False) as wire:
        for path in ("/healthz", "/readyz", "/v1/tools", "/nowhere"):
            await wire.get(path)
    async with opened("not_ready", KEYS + broken) as wire:
        await wire.get("/readyz")
        await wire.get("/v1/providers", "alice-key")
        await wire.get("/v1/tools", "alice-key")
        await wire.post(TOOL_CALLS, "alice-key", {"id": "c1", "name": "echo", "arguments": {"text": "x"}})


async def test_requests_that_no_route_takes(opened: Opened) -> None:
    async with opened("refusals", KEYS + DESK + HTTP) as wire:
        wire.title("Unknown paths")
        for path in ("/nowhere", "/v1/tools/", "/v1//tools", "/api/sessions/ABCDEFGH/nothing", "/v1/desk/a/b"):
            await wire.get(path)
        await wire.get("/nowhere", "alice-key")
        await wire.ask("HEAD", "/nowhere")
        wire.title("Methods")
        for method, path in (("DELETE", "/v1/tools"), ("PUT", TOOL_CALLS), ("POST", "/healthz"), ("BREW", "/mcp")):
            await wire.ask(method, path, "alice-key")
        await wire.ask("OPTIONS", "/v1/tools")
        await wire.ask("GET", TOOL_CALLS)
        await wire.ask("HEAD", "/v1/tools", "alice-key")
        wire.title("Origins and preflights")
        await wire.get("/v1/tools", "alice-key", headers=FOREIGN)
        await wire.get("/v1/tools", "alice-key", headers=LISTED)
        await wire.get("/v1/tools", "alice-key", headers={"origin": "http://localhost"})
        await wire.get("/api/sessions", "alice-key", headers=LISTED)
        await wire.get("/api/sessions", headers=LISTED)
        await wire.get("/api/sessions", "alice-key", headers=FOREIGN)
        for path in ("/api/sessions", "/api/sessions/ABCDEFGH", "/mcp", "/v1/tools", "/nowhere"):
            await wire.ask("OPTIONS", path, headers=LISTED | PREFLIGHT)
        await wire.ask("OPTIONS", "/mcp", headers=FOREIGN | PREFLIGHT)
        private = {"access-control-request-private-network": "true"}
        await wire.ask("OPTIONS", "/mcp", headers=LISTED | PREFLIGHT | private)
        await wire.get("/mcp", headers={"origin": "null"})
        wire.title("Hosts")
        for host in ("evil.example", "tools.example", "127.0.0.1:8080", "localhost:8080", "localhost:1", "", ABSENT):
            await wire.get("/healthz", headers={"host": host})
        wire.title("Bodies")
        json_types = ("text/plain", "application/json; charset=utf-8", "application/problem+json", ABSENT)
        for content_type in json_types:
            await wire.post(
                TOOL_CALLS, "alice-key", {"id": "c1", "name": "nope"}, headers={"content-type": content_type}
            )
        await wire.post(TOOL_CALLS, "alice-key", {"name": "x" * 500})
        await wire.post(TOOL_CALLS, "alice-key", {"name": "x" * 500}, headers={"content-length": ABSENT})
        await wire.post(TOOL_CALLS, "alice-key", b"{}", headers={"content-length": "501"})
        await wire.post(TOOL_CALLS, "alice-key", b"{}", headers={"content-length": "many"})
        await wire.post(TOOL_CALLS, "alice-key", b"{}", headers={"content-encoding": "gzip"})
        await wire.post("/v1/desk", "alice-key", b"x" * 501)
        wire.title("Headers")
        await wire.get("/healthz", headers={f"x-{number}": "1" for number in range(100)})
        await wire.get("/healthz", headers={"x-long": "x" * 32_768})


async def test_who_may_come_in(opened: Opened) -> None:
    async with opened("auth") as wire:
        wire.title("Credentials")
        await wire.get("/v1/tools")
        await wire.get("/v1/tools", "wrong-key")
        await wire.get("/v1/tools", headers={"x-api-key": "wrong-key"})
        await wire.get("/v1/tools", headers={"authorization": "Basic YTpi"})
        await wire.get("/v1/tools", headers={"authorization": "Bearer "})
        await wire.get("/v1/tools", "alice-key", headers={"x-api-key": "bob-key"})
        await wire.get("/mcp")
        await wire.post("/mcp", body={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        await wire.get("/api/sessions")
        await wire.get("/v1/desk")
        await wire.get("/v1/open")
        wire.title("Scopes")
        await wire.post(TOOL_CALLS, "reader-key", {"name": "echo"})
        await wire.get("/v1/tools", "caller-key")
        for method, path in (
            ("GET", "/v1/explain"),
            ("GET", "/v1/configuration"),
            ("POST", "/v1/reload"),
            ("POST", "/v1/providers/desk/enable"),
            ("POST", "/v1/providers/desk/disable"),
            ("GET", "/v1/approvals"),
            ("POST", "/v1/approvals/none"),
            ("PUT", "/api/agents/researcher/toolsets"),
            ("PUT", "/api/toolset-bindings/web"),
            ("POST", "/api/mcp-servers"),
            ("DELETE", "/api/mcp-servers/none"),
        ):
            await wire.ask(method, path, "alice-key")
        for method, path in (
            ("POST", "/api/sessions"),
            ("DELETE", "/api/sessions/ABCDEFGH"),
            ("POST", "/mcp"),
            ("POST", "/v1/responses"),
            ("POST", "/api/toolsets"),
            ("GET", "/v1/desk"),
            ("DELETE", "/v1/desk/3"),
        ):
            await wire.ask(method, path, "reader-key")
        wire.title("Agents of a key")
        for path in ("/v1/tools", "/v1/tools?agent=researcher", "/v1/tools?agent=other", "/mcp", "/v1/desk"):
            await wire.get(path, "one-agent-key")
            await wire.get(path, "two-agents-key")


async def test_a_host_without_keys_serves_this_machine_only(opened: Opened) -> None:
    async with opened("without_auth", "store: memory://", DESK) as wire:
        await wire.get("/v1/desk")
        await wire.post(TOOL_CALLS, body={"id": "c1", "name": "whoami"})
        await wire.get("/v1/approvals")
        await wire.get("/healthz", peer="192.0.2.1")
        await wire.get("/v1/tools", peer="192.0.2.1")
