"""Agents over HTTP: their tools, their allowlists, and toolsets that a tenant binds."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator

import pytest
from httpx2 import AsyncClient, Response
from tests.http.conftest import ALICE, KEYS, ROOT, as_holder, client_of, settings
from tests.toolsets.harness import Shop

from toolplug import Host, open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

TOOLSETS = {"web": {"prefix": "web", "from": "provider:sample"}}
AGENTS = {"researcher": {"toolsets": ["web"]}, "writer": {}}
OTHER_ROOT = {"key": "other-root-key", "subject": "eve", "tenant": "t2", "scopes": ["admin"]}
EVE = as_holder("other-root-key")


@pytest.fixture
async def host(sample_package: None) -> AsyncIterator[Host]:
    auth = {"api_keys": [*KEYS["api_keys"], OTHER_ROOT]}
    async with open_host(settings(toolsets=TOOLSETS, agents=AGENTS, auth=auth), environ={}) as opened:
        yield opened


@pytest.fixture
async def client(host: Host) -> AsyncIterator[AsyncClient]:
    async with client_of(create_app(host)) as opened:
        yield opened


async def names(client: AsyncClient, agent: str, headers: dict[str, str] = ROOT, dialect: str = "mcp") -> list[str]:
    answer = await client.get(f"/v1/tools?agent={agent}&format={dialect}", headers=headers)
    assert answer.status_code == 200
    return [tool["name"] for tool in answer.json()["tools"]]


def code(answer: Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


async def called(client: AsyncClient, name: str, agent: str, headers: dict[str, str] = ROOT) -> dict[str, object]:
    body = {"id": "c1", "name": name, "arguments": {"text": "hi"}, "agent": agent}
    answer = await client.post("/v1/tool-calls", json=body, headers=headers)
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.requirement("C-5-catalog-agent", "ROUTE-publish", "C-7-full-name", "C-5-agent-unknown")
async def test_an_agents_tools_are_listed_and_called_under_their_prefix(client: AsyncClient) -> None:
    assert (await names(client, "researcher"))[0] == "web__echo"
    assert (await names(client, "writer"), await names(client, "nobody")) == ([], [])
    for name in ("web.echo", "web__echo"):
        result = await called(client, name, "researcher")
        assert (result["call_id"], result["status"]) == ("c1", "success")
    assert (await called(client, "web.echo", "writer"))["output"] == "Toolset not found for web.echo"
    implied = await client.get("/v1/tools?format=mcp", headers=as_holder("one-agent-key"))
    assert implied.json()["tools"][0]["name"] == "web__echo"


@pytest.mark.requirement("C-7-allowlist-put", "C-7-allowlist-revoked", "ROUTE-allowlist")
async def test_an_allowlist_is_replaced_for_the_callers_tenant_and_holds_for_the_next_call(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolplug.audit")
    path = "/api/agents/writer/toolsets"
    assert (await client.get(path, headers=ROOT)).json()["toolsets"] == []
    put = await client.put(path, json={"toolsets": ["web"]}, headers=ROOT)
    shown = {"agent": "writer", "toolsets": ["web"], "origin": "PUT /api/agents/writer/toolsets by root"}
    assert (put.status_code, put.json()) == (200, shown)
    assert (await client.get(path, headers=ROOT)).json() == shown
    assert (await called(client, "web.echo", "writer"))["status"] == "success"
    assert await names(client, "writer", EVE) == []
    await client.put("/api/agents/researcher/toolsets", json={"toolsets": []}, headers=ROOT)
    assert (await called(client, "web.echo", "researcher"))["status"] == "unknown_tool"
    assert (await called(client, "web.echo", "researcher", EVE))["status"] == "success"
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "toolplug.audit"]
    told = [(line["event"], line["outcome"], line["principal"], line["target"]) for line in lines]
    assert ("agent.toolsets", "done", "root", "writer") in told


@pytest.mark.requirement("C-7-allowlist-unknown")
async def test_an_allowlist_that_cannot_be_changes_nothing(client: AsyncClient) -> None:
    path = "/api/agents/researcher/toolsets"
    unknown = await client.put(path, json={"toolsets": ["web", "wep"]}, headers=ROOT)
    assert code(unknown) == (422, "unknown_toolset", "toolsets[1]")
    assert unknown.json()["error"]["message"] == "there is no toolset 'wep' (nearest: 'web')"
    bodies: list[object] = [{}, {"toolsets": "web"}, {"toolsets": [], "more": 1}, {"toolsets": [1]}, []]
    for body in bodies:
        assert (await client.put(path, json=body, headers=ROOT)).status_code == 400
    odd = await client.put("/api/agents/a%20b/toolsets", json={"toolsets": []}, headers=ROOT)
    assert code(odd) == (400, "invalid_agent", "id")
    assert (await client.get(path, headers=ROOT)).json()["toolsets"] == ["web"]


@pytest.mark.requirement("C-5-scope-admin", "C-7-allowlist-put", "C-7-binding")
async def test_toolsets_and_allowlists_are_for_admins(client: AsyncClient) -> None:
    requests = [
        ("GET", "/api/agents/writer/toolsets", None),
        ("PUT", "/api/agents/writer/toolsets", {"toolsets": ["web"]}),
        ("PUT", "/api/toolset-bindings/docs", {"prefix": "docs", "from": "provider:sample"}),
    ]
    for method, path, body in requests:
        answer = await client.request(method, path, json=body, headers=ALICE)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope")
    assert await names(client, "writer") == []


@pytest.mark.requirement("C-7-binding", "C-7-same-id-replaces", "C-7-prefix-error")
async def test_a_toolset_is_bound_for_the_callers_tenant(client: AsyncClient) -> None:
    path = "/api/toolset-bindings/docs"
    bound = await client.put(path, json={"prefix": "docs", "from": "provider:sample"}, headers=ROOT)
    assert (bound.status_code, bound.json()) == (
        200,
        {"id": "docs", "prefix": "docs", "from": "provider:sample", "scope": "shared"},
    )
    await client.put("/api/agents/writer/toolsets", json={"toolsets": ["docs"]}, headers=ROOT)
    assert (await names(client, "writer"))[0] == "docs__echo"
    await client.put(path, json={"prefix": "papers", "from": "provider:sample", "scope": "shared"}, headers=ROOT)
    assert (await names(client, "writer"))[0] == "papers__echo"
    foreign = await client.put("/api/agents/writer/toolsets", json={"toolsets": ["docs"]}, headers=EVE)
    assert code(foreign) == (422, "unknown_toolset", "toolsets[0]")


@pytest.mark.requirement("C-7-prefix-error", "C-7-binding")
@pytest.mark.parametrize(
    ("name", "body", "answer"),
    [
        ("docs", {"prefix": "web", "from": "provider:sample"}, (409, "prefix_taken", "prefix")),
        ("docs", {"prefix": "a.b", "from": "provider:sample"}, (422, "invalid_toolset", "prefix")),
        ("docs", {"prefix": "", "from": "provider:sample"}, (422, "invalid_toolset", "prefix")),
        ("DOCS", {"prefix": "docs", "from": "provider:sample"}, (422, "invalid_toolset", "id")),
        ("docs", {"prefix": "docs", "from": "provider:sampel"}, (422, "unknown_provider", "from")),
        ("docs", {"prefix": "docs", "from": "sample"}, (422, "unknown_provider", "from")),
        ("docs", {"prefix": "docs", "from": "mcp:time"}, (422, "unknown_server", "from")),
        (
            "docs",
            {"prefix": "docs", "from": "provider:sample", "scope": "session"},
            (422, "provider_is_shared", "scope"),
        ),
        ("docs", {"prefix": "docs", "from": "provider:sample", "scope": "all"}, (400, "invalid_request", "scope")),
        ("docs", {"prefix": "docs"}, (400, "invalid_request", "from")),
    ],
)
async def test_a_toolset_that_cannot_be_is_refused(
    client: AsyncClient, name: str, body: dict[str, object], answer: tuple[int, str, str]
) -> None:
    assert code(await client.put(f"/api/toolset-bindings/{name}", json=body, headers=ROOT)) == answer
    missing = await client.put("/api/agents/writer/toolsets", json={"toolsets": ["docs"]}, headers=ROOT)
    assert missing.status_code == 422


@pytest.mark.requirement("C-7-first-use-opens", "C-7-no-session", "C-7-factory-once")
async def test_a_listing_over_http_opens_what_lists_nothing_and_closes_it_without_a_session(
    host: Host, client: AsyncClient
) -> None:
    shop = Shop()
    host.register_toolset("fs", "fs", shop)
    await client.put("/api/agents/writer/toolsets", json={"toolsets": ["fs"]}, headers=ROOT)
    assert await names(client, "writer") == ["fs__read"]
    body = {"name": "fs.read", "agent": "writer"}
    answer = await client.post("/v1/tool-calls", json=body, headers=ROOT)
    assert (answer.json()["output"], shop.closed) == ("files 2", [1, 1])


@pytest.mark.requirement("I4-explain-gates", "C-5-explain")
async def test_explain_names_what_keeps_a_tool_from_an_agent(client: AsyncClient) -> None:
    answer = (await client.get("/v1/explain?tool=web.echo&agent=writer", headers=ROOT)).json()
    refused = [gate for gate in answer["gates"] if gate["verdict"] == "refuses"]
    assert answer["callable"] is False
    assert [(gate["gate"], gate["detail"]) for gate in refused] == [
        ("allowlist", "agent 'writer' may not use toolset 'web'")
    ]
    answer = (await client.get("/v1/explain?tool=web.ecko&agent=researcher", headers=ROOT)).json()
    assert (answer["found"], answer["nearest"]) == (False, ["web.echo"])


@pytest.mark.requirement("C-7-request-filter-empty", "C-7-intersection", "C-3-denied")
async def test_a_request_may_ask_for_some_of_its_agents_toolsets(client: AsyncClient) -> None:
    await client.put("/api/toolset-bindings/docs", json={"prefix": "docs", "from": "provider:sample"}, headers=ROOT)
    await client.put("/api/agents/writer/toolsets", json={"toolsets": ["web", "docs"]}, headers=ROOT)
    whole = await names(client, "writer")
    assert {name.partition("__")[0] for name in whole} == {"web", "docs"}
    for none in ("", ",", "web,docs"):
        assert await names(client, f"writer&toolsets={none}") == whole
    assert {name.partition("__")[0] for name in await names(client, "writer&toolsets=docs,what")} == {"docs"}
    asked: list[tuple[object, str]] = [(None, "success"), ([], "success"), (["web"], "success"), (["docs"], "denied")]
    for toolsets, status in asked:
        body = {"name": "web.echo", "arguments": {"text": "hi"}, "agent": "writer", "toolsets": toolsets}
        answer = await client.post("/v1/tool-calls", json=body, headers=ROOT)
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    wrong = await client.post("/v1/tool-calls", json={"name": "web.echo", "toolsets": "web"}, headers=ROOT)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "toolsets")
