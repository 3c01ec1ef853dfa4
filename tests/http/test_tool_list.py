"""`GET /v1/tools`: dialects, versions, and whose tools."""

from __future__ import annotations

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE, ROOT, as_holder, client_of, settings

from toolplug import Host, Principal, open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("C-5-tools-formats")
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic", "mcp"])
async def test_the_list_is_the_catalogs_own_bytes_in_each_dialect(
    client: AsyncClient, host: Host, dialect: str
) -> None:
    answer = await client.get(f"/v1/tools?format={dialect}", headers=ALICE)
    assert answer.content == b'{"tools":' + host.registry.catalog.render(dialect) + b"}"  # type: ignore[arg-type]
    assert answer.headers["content-type"] == "application/json"
    if dialect == "chat":
        assert (await client.get("/v1/tools", headers=ALICE)).content == answer.content


@pytest.mark.requirement("C-5-tools-formats")
@pytest.mark.parametrize(
    ("query", "param"), [("format=xml", "format"), ("format=", "format"), ("format=chat&format=mcp", "format")]
)
async def test_an_unknown_or_doubled_format_is_refused(client: AsyncClient, query: str, param: str) -> None:
    answer = await client.get(f"/v1/tools?{query}", headers=ALICE)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", param)


@pytest.mark.requirement("C-5-catalog-bare")
@pytest.mark.parametrize("path", ["/v1/tools", "/v1/explain?tool=echo", "/api/catalog", "/api/toolsets"])
async def test_an_agent_or_session_without_a_value_is_none(client: AsyncClient, path: str) -> None:
    plain = await client.get(path, headers=ROOT)
    empty = await client.get(f"{path}{'&' if '?' in path else '?'}agent=&session=", headers=ROOT)
    assert (empty.status_code, empty.content) == (200, plain.content)


async def test_a_query_of_very_many_fields_is_refused(client: AsyncClient) -> None:
    answer = await client.get("/v1/tools?" + "&".join(f"f{number}=1" for number in range(33)), headers=ALICE)
    assert answer.json()["error"]["code"] == "invalid_request"


@pytest.mark.requirement("C-5-tools-etag")
async def test_who_has_the_newest_version_gets_304(client: AsyncClient) -> None:
    first = await client.get("/v1/tools", headers=ALICE)
    etag = first.headers["etag"]
    for condition in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = await client.get("/v1/tools", headers={**ALICE, "If-None-Match": condition})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    other = await client.get("/v1/tools?format=mcp", headers={**ALICE, "If-None-Match": etag})
    assert (other.status_code, other.headers["etag"] == etag) == (200, False)


@pytest.mark.requirement("C-5-tools-etag")
async def test_the_version_changes_with_the_tools_and_comes_back_with_them(client: AsyncClient) -> None:
    first = await client.get("/v1/tools", headers=ALICE)
    await client.post("/v1/providers/sample/disable", headers=ROOT)
    without = await client.get("/v1/tools", headers={**ALICE, "If-None-Match": first.headers["etag"]})
    assert (without.status_code, without.json()) == (200, {"tools": []})
    await client.post("/v1/providers/sample/enable", headers=ROOT)
    again = await client.get("/v1/tools", headers={**ALICE, "If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.requirement("C-5-catalog-bare")
async def test_without_agent_every_active_providers_tools_stand_in_the_order_of_the_file(sample_package: None) -> None:
    rules = {"whoami": "disable", "fails": {"policy": "deny"}, "exits": {"tenants": ["t2"]}}
    providers = {"second": {"enabled": False, "type": "sample"}, "sample": {"enabled": True, "tools": rules}}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        listed = (await client.get("/v1/tools", headers=ALICE)).json()["tools"]
        names = [tool["function"]["name"] for tool in listed]
        assert names == list(host.registry.catalog.visible_to(Principal(tenant="t1")))
        assert {"whoami", "exits"}.isdisjoint(names), "disabled and another tenant's are hidden"
        assert "fails" in names, "what is denied is listed"


@pytest.mark.requirement("C-5-agent-unknown", "C-5-agent-default", "C-5-session-unknown")
async def test_an_agent_that_nobody_configured_lists_nothing_and_an_unknown_session_is_404(
    client: AsyncClient,
) -> None:
    for agent in ("nobody", "default"):
        assert (await client.get(f"/v1/tools?agent={agent}", headers=ALICE)).json() == {"tools": []}
        body = {"name": "echo", "arguments": {"text": "x"}, "agent": agent}
        called = await client.post("/v1/tool-calls", headers=ALICE, json=body)
        assert called.json()["status"] == "unknown_tool"
    for answer in (
        await client.get("/v1/tools?session=ABCDEFGH", headers=ALICE),
        await client.post("/v1/tool-calls", headers=ALICE, json={"name": "echo", "session": "ABCDEFGH"}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session_not_found")


@pytest.mark.requirement("C-5-agent-bound-key", "C-5-agent-implied", "C-5-agent-required", "C-5-agent-not-allowed")
async def test_a_key_that_names_agents_never_gets_the_catalog_without_agent(client: AsyncClient) -> None:
    one, two = as_holder("one-agent-key"), as_holder("two-agents-key")
    assert (await client.get("/v1/tools", headers=one)).json() == {"tools": []}
    assert (await client.get("/v1/tools?agent=writer", headers=two)).json() == {"tools": []}
    required = await client.get("/v1/tools", headers=two)
    assert (required.status_code, required.json()["error"]["code"]) == (400, "agent_required")
    assert "researcher, writer" in required.json()["error"]["message"]
    for answer in (
        await client.get("/v1/tools?agent=writer", headers=one),
        await client.post("/v1/tool-calls", headers=one, json={"name": "echo", "agent": "writer"}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "agent_not_allowed")
