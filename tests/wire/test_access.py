"""Who may ask what: keys, scopes, tenants, agents, names of hosts and origins."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest
from tests.wire.answers import error_of
from tests.wire.callers import Caller, Deployment, client_of, new_name

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]

OPEN = ["/healthz", "/readyz", "/metrics", "/v1/openapi.json", "/", "/toolplug.js"]
READS = [
    "/v1/tools",
    "/v1/tools/stream",
    "/v1/models",
    "/v1/providers",
    "/v1/explain?tool=hello",
    "/v1/configuration",
    "/v1/approvals",
    "/v1/responses/resp_1",
    "/v1/responses/resp_1/input_items",
    "/v1/wire/otter",
    "/api/sessions",
    "/api/session-types",
    "/api/sessions/ABCDEFGH/metadata",
    "/api/sessions/ABCDEFGH/prompt",
    "/api/sessions/ABCDEFGH/stream",
    "/api/sessions/ABCDEFGH/events",
    "/api/sessions/ABCDEFGH/tool-calls/call_1",
    "/api/catalog",
    "/api/toolsets",
    "/api/toolsets/active",
    "/api/toolsets/mine",
    "/api/toolsets/mine/export",
    "/api/agents/greeter/toolsets",
    "/api/mcp-servers",
    "/api/mcp-servers/infile",
]
WRITES = [
    ("POST", "/v1/tool-calls"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/chat/completions"),
    ("DELETE", "/v1/responses/resp_1"),
    ("POST", "/v1/responses/resp_1/cancel"),
    ("POST", "/v1/approvals/apr_1"),
    ("POST", "/v1/providers/hello/disable"),
    ("POST", "/v1/providers/hello/enable"),
    ("POST", "/v1/reload"),
    ("POST", "/v1/wire"),
    ("POST", "/mcp"),
    ("POST", "/api/sessions"),
    ("DELETE", "/api/sessions/ABCDEFGH"),
    ("POST", "/api/sessions/ABCDEFGH/tool-calls"),
    ("POST", "/api/sessions/ABCDEFGH/mcp"),
    ("POST", "/api/toolsets"),
    ("POST", "/api/toolsets/mine/equip"),
    ("POST", "/api/toolsets/unequip"),
    ("POST", "/api/toolsets/import"),
    ("POST", "/api/toolsets/mine/notes"),
    ("DELETE", "/api/toolsets/mine/notes"),
    ("DELETE", "/api/toolsets/mine"),
    ("PUT", "/api/agents/greeter/toolsets"),
    ("PUT", "/api/toolset-bindings/mine"),
    ("POST", "/api/mcp-servers"),
    ("PATCH", "/api/mcp-servers/mine"),
    ("DELETE", "/api/mcp-servers/mine"),
    ("POST", "/api/mcp-servers/mine/discover"),
]
FOR_PLUGINS = ["register-tools", "update-tools", "tool-results", "heartbeat"]
SCOPES = [
    ("tools:call", "GET", "/v1/tools"),
    ("tools:call", "GET", "/v1/providers"),
    ("tools:call", "GET", "/api/catalog"),
    ("tools:call", "GET", "/api/toolsets"),
    ("tools:call", "GET", "/api/sessions"),
    ("tools:read", "POST", "/v1/tool-calls"),
    ("tools:read", "POST", "/v1/responses"),
    ("tools:read", "POST", "/v1/chat/completions"),
    ("tools:read", "POST", "/mcp"),
    ("tools:read", "POST", "/api/toolsets"),
    ("tools:read", "GET", "/v1/wire/otter"),
    ("tools:read tools:call", "POST", "/api/sessions"),
    ("tools:read tools:call", "GET", "/v1/approvals"),
    ("tools:read tools:call", "POST", "/v1/approvals/apr_1"),
    ("tools:read tools:call", "POST", "/v1/wire"),
    ("tools:read tools:call sessions:write approvals:write", "GET", "/v1/explain?tool=hello"),
    ("tools:read tools:call sessions:write approvals:write", "GET", "/v1/configuration"),
    ("tools:read tools:call sessions:write approvals:write admin", "POST", "/v1/reload"),
    ("tools:read tools:call sessions:write approvals:write admin", "POST", "/v1/providers/hello/disable"),
    ("tools:read tools:call sessions:write approvals:write admin", "GET", "/v1/approvals?tenants=all"),
    ("tools:read tools:call sessions:write approvals:write admin", "GET", "/v1/tools?tenant=another"),
    ("tools:read tools:call sessions:write approvals:write", "PUT", "/api/agents/greeter/toolsets"),
    ("tools:read tools:call sessions:write approvals:write", "PUT", "/api/toolset-bindings/mine"),
    ("tools:read tools:call sessions:write approvals:write", "POST", "/api/mcp-servers"),
]
WRONG_TOKENS: dict[str, dict[str, Any]] = {
    "expired": {"exp": int(time.time()) - 3600},
    "of another issuer": {"iss": "https://elsewhere.example"},
    "for another audience": {"aud": "elsewhere"},
}


def bearer(key: str) -> dict[str, str]:
    """A key as a header."""
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("path", OPEN)
async def test_a_page_is_open(nobody: httpx2.AsyncClient, path: str) -> None:
    answer = await nobody.get(path)
    assert (answer.status_code, len(answer.content) > 5) == (200, True)


@pytest.mark.parametrize(("method", "path"), [*(("GET", path) for path in READS), *WRITES])
async def test_a_route_needs_a_key(nobody: httpx2.AsyncClient, method: str, path: str) -> None:
    answer = await nobody.request(method, path, json=None if method == "GET" else {})
    assert error_of(answer) == (401, "authentication_required")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", FOR_PLUGINS)
async def test_a_route_needs_the_token_of_a_plugin(client: httpx2.AsyncClient, path: str) -> None:
    code = (await client.post("/api/sessions")).json()["code"]
    answer = await client.post(f"/api/sessions/{code}/{path}", json={})
    assert answer.status_code in (401, 403)


@pytest.mark.parametrize(("scopes", "method", "path"), SCOPES)
async def test_a_route_needs_a_scope(caller: Caller, scopes: str, method: str, path: str) -> None:
    client = await caller(scope=scopes)
    answer = await client.request(method, path, json=None if method == "GET" else {})
    assert error_of(answer) == (403, "insufficient_scope")
    assert answer.json()["error"]["type"] == "forbidden"


@pytest.mark.parametrize("claims", WRONG_TOKENS.values(), ids=WRONG_TOKENS.keys())
async def test_a_token_is_refused(deployment: Deployment, claims: dict[str, Any]) -> None:
    headers = {**bearer(deployment.key("t", **claims)), "X-Forwarded-For": "198.51.100.7"}
    async with client_of(deployment.url, headers) as client:
        answer = await client.get("/v1/tools")
    assert (answer.status_code, "www-authenticate" in answer.headers) == (401, True)


async def test_a_key_that_nobody_has_is_refused(nobody: httpx2.AsyncClient) -> None:
    for header in (bearer("wrong"), {"X-API-Key": "wrong"}):
        answer = await nobody.get("/v1/tools", headers={**header, "X-Forwarded-For": "198.51.100.8"})
        assert answer.status_code == 401


@pytest.mark.parametrize("header", [bearer("wire-key"), {"X-API-Key": "wire-key"}], ids=["bearer", "own header"])
async def test_a_key_of_the_file_is_taken(nobody: httpx2.AsyncClient, header: dict[str, str]) -> None:
    told = await nobody.post("/v1/tool-calls", json={"name": "whoami"}, headers=header)
    assert told.json()["structured"] == {"subject": "wire", "tenant": "wire", "agent": None, "session": None}


async def test_an_unknown_path_is_not_found_with_and_without_a_key(
    nobody: httpx2.AsyncClient, client: httpx2.AsyncClient
) -> None:
    for each in (nobody, client):
        for path in ("/v1/nothing", "/api/nothing", "/nothing"):
            answer = await each.get(path)
            assert error_of(answer) == (404, "route_not_found")


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/v1/tools"), ("GET", "/v1/tool-calls"), ("PUT", "/v1/wire")])
async def test_a_method_that_a_route_lacks_is_refused(client: httpx2.AsyncClient, method: str, path: str) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, bool(answer.headers["allow"])) == (405, True)


async def test_every_answer_has_an_id_of_its_request(client: httpx2.AsyncClient) -> None:
    answers = [await client.get("/v1/nothing") for _ in range(4)]
    ids = {answer.json()["error"]["request_id"] for answer in answers}
    assert len(ids) == 4
    assert {answer.headers["x-request-id"] for answer in answers} == ids


async def test_a_key_with_one_agent_has_its_tools_only(nobody: httpx2.AsyncClient) -> None:
    key = bearer("agent-key")
    names = [tool["function"]["name"] for tool in (await nobody.get("/v1/tools", headers=key)).json()["tools"]]
    assert names[0] == "greet__hello"
    assert "echo" not in names
    assert (await nobody.get("/v1/tools?agent=greeter", headers=key)).status_code == 200
    answer = await nobody.get("/v1/tools?agent=default", headers=key)
    assert error_of(answer) == (403, "agent_not_allowed")
    answer = await nobody.get("/v1/wire/otter", headers=key)
    assert error_of(answer) == (403, "agent_not_allowed")
    called = await nobody.post("/v1/tool-calls", json={"name": "greet.hello"}, headers=key)
    assert called.json()["output"] == "Hello, world!"
    called = await nobody.post("/v1/tool-calls", json={"name": "hello"}, headers=key)
    assert called.json()["status"] == "unknown_tool"


async def test_a_key_with_several_agents_must_say_which(caller: Caller) -> None:
    client = await caller(agents=["greeter", "default"])
    answer = await client.get("/v1/tools")
    assert error_of(answer) == (400, "agent_required")
    assert (await client.get("/v1/tools?agent=greeter")).status_code == 200


async def test_a_key_without_agents_reaches_nothing(caller: Caller) -> None:
    client = await caller(agents=[])
    called = await client.post("/v1/tool-calls", json={"name": "hello"})
    assert (called.status_code == 200 and called.json()["status"] == "unknown_tool") or called.status_code in (400, 403)


async def test_a_strange_host_name_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/tools", headers={"Host": "elsewhere.example"})
    assert error_of(answer) == (421, "host_not_allowed")


async def test_a_strange_origin_is_refused_and_a_listed_one_is_answered(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/tools", headers={"Origin": "https://evil.example"})
    assert error_of(answer) == (403, "origin_not_allowed")
    answer = await client.post("/api/sessions", headers={"Origin": "https://page.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (201, "https://page.example")


@pytest.mark.parametrize("path", ["/api/sessions", "/mcp"])
async def test_a_page_may_ask_before(nobody: httpx2.AsyncClient, path: str) -> None:
    asked = {
        "Origin": "https://page.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    answer = await nobody.options(path, headers=asked)
    assert answer.status_code in (200, 204)
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()


@pytest.mark.parametrize("path", ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"])
async def test_clients_find_who_issues_tokens(deployment: Deployment, nobody: httpx2.AsyncClient, path: str) -> None:
    found = (await nobody.get(path)).json()
    assert found["resource"] == deployment.url + ("/mcp" if path.endswith("/mcp") else "")
    assert found["authorization_servers"] == ["https://issuer.example"]


async def test_mcp_says_where_to_get_a_token(deployment: Deployment, nobody: httpx2.AsyncClient) -> None:
    answer = await nobody.post("/mcp", json={})
    assert (
        f'resource_metadata="{deployment.url}/.well-known/oauth-protected-resource/mcp"'
        in answer.headers["www-authenticate"]
    )


async def test_tenants_do_not_see_one_another(client: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    code = (await client.post("/api/sessions")).json()["code"]
    name = new_name("mine")
    await client.post("/api/toolsets", json={"name": name, "tools": [{"namespacedName": "hello"}]})
    for path in (f"/api/sessions/{code}/metadata", f"/api/sessions/{code}/events", f"/api/toolsets/{name}"):
        assert (await stranger.get(path)).status_code == 404
    assert (await stranger.delete(f"/api/sessions/{code}")).status_code == 404
    assert (await client.get(f"/api/sessions/{code}/metadata")).status_code == 200
