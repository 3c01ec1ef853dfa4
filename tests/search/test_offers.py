"""How tools are offered, where it is said outside of the configuration: in code and over HTTP."""

from __future__ import annotations

import pytest
from tests.http.conftest import ROOT, client_of
from tests.search.conftest import OpenMany
from tests.search.many_provider import Many

from toolplug import FunctionRegistry, Host, Principal, ToolDefinition
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-9-tool-search")]

CALLER = Principal(subject="caller", scopes=frozenset({"tools:call"}))
TWO = ["search_tools", "call_tool"]


def shown(host: Host) -> list[str]:
    """The names of the tools that a model sees as the agent."""
    return [tool.name for tool in host.executor_for(CALLER, agent="clerk").catalog.shown.definitions()]


async def test_a_toolset_of_code_is_searched_if_it_is_registered_so(open_many: OpenMany) -> None:
    async with open_many({"offer": "always"}) as host, FunctionRegistry([Many]) as registry:
        host.register_toolset("crm", "crm", registry, offer="search")
        await host.allow("clerk", ["crm"], tenant=CALLER.tenant)
        assert shown(host) == TWO
        host.register_toolset("crm", "crm", registry)
        assert len(shown(host)) == 100


async def test_the_declared_tools_of_a_factory_are_searched_before_it_has_run(open_many: OpenMany) -> None:
    declared = [ToolDefinition(name=f"draw_{number}") for number in range(30)]
    async with open_many({"offer": "always"}) as host:
        host.register_toolset("crm", "crm", lambda: FunctionRegistry([Many]), declared, offer="search")
        await host.allow("clerk", ["crm"], tenant=CALLER.tenant)
        assert shown(host) == TWO


async def test_the_tools_of_a_factory_are_searched_once_it_has_run(open_many: OpenMany) -> None:
    async with open_many({"offer": "always"}) as host:
        host.register_toolset("crm", "crm", lambda: FunctionRegistry([Many]), offer="search")
        await host.allow("clerk", ["crm"], tenant=CALLER.tenant)
        listed = await host.catalog_for(CALLER, agent="clerk")
    assert [tool.name for tool in listed.shown.definitions()] == TWO


async def test_a_toolset_is_bound_with_its_offer_over_http(open_many: OpenMany) -> None:
    path, body = "/api/toolset-bindings/crm", {"prefix": "crm", "from": "provider:many"}
    async with open_many({"offer": "always"}) as host, client_of(create_app(host)) as client:
        bound = await client.put(path, json={**body, "offer": "search"}, headers=ROOT)
        assert bound.json() == {"id": "crm", **body, "scope": "shared", "offer": "search"}
        await client.put("/api/agents/clerk/toolsets", json={"toolsets": ["crm"]}, headers=ROOT)
        assert shown(host) == TWO
        explained = await client.get("/v1/explain?agent=clerk&tool=crm.merge_branch_37", headers=ROOT)
        listed = (await client.get("/api/catalog?agent=clerk", headers=ROOT)).json()["tools"]
        refused = await client.put(path, json={**body, "offer": "sometimes"}, headers=ROOT)
        await client.put(path, json=body, headers=ROOT)
        assert len(shown(host)) == 100
    assert "PUT /api/toolset-bindings/crm by root" in explained.text
    assert {tool["offer"] for tool in listed} == {"search"}
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "offer")
