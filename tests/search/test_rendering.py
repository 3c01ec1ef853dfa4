"""What a model is sent of a catalog with deferred tools, in each dialect."""

from __future__ import annotations

from typing import Any

import pytest
from tests.http.conftest import ALICE as ALICE_KEY
from tests.http.conftest import client_of
from tests.search.conftest import OpenMany
from tests.search.many_provider import name_of

from toolplug import Host, Principal, ToolExecutor
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-9-tool-search")]

ALICE = Principal(subject="alice", tenant="t1", scopes=frozenset({"tools:call"}))
TWO = ["search_tools", "call_tool"]
CRM = {"crm": {"prefix": "crm", "from": "provider:many"}}
AGENT = {"clerk": {"toolsets": ["crm"]}}


def chat_names(tools: list[dict[str, Any]]) -> list[str]:
    """The names of functions in Chat Completions form."""
    return [tool["function"]["name"] for tool in tools]


def shown(tools: ToolExecutor) -> list[str]:
    """The names of the tools that a model sees."""
    return [tool.name for tool in tools.catalog.shown.definitions()]


async def listed(host: Host, dialect: str, **query: str) -> list[dict[str, Any]]:
    """The answer of `GET /v1/tools`."""
    async with client_of(create_app(host)) as client:
        answer = await client.get("/v1/tools", params={"format": dialect, **query}, headers=ALICE_KEY)
    return answer.json()["tools"]


async def test_dialects_without_a_search_of_their_own_show_the_two_tools_last(open_many: OpenMany) -> None:
    async with open_many({"tools": {name_of(7): {"offer": "always"}}}) as host:
        assert chat_names(await listed(host, "chat")) == [name_of(7), *TWO]
        assert [tool["name"] for tool in await listed(host, "gemini")] == [name_of(7), *TWO]
        assert [tool["name"] for tool in await listed(host, "mcp")] == [name_of(7), *TWO]


async def test_the_model_is_told_how_many_tools_it_has_not_seen(open_many: OpenMany) -> None:
    async with open_many(
        {"count": 1_000, "tools": {name_of(number): {"offer": "always"} for number in range(5)}}
    ) as host:
        search = host.executor_for(ALICE).for_openai()[5]["function"]
    assert "5 of your 1,000 tools are listed, 995 are not" in search["description"]


async def test_anthropic_is_sent_every_tool_deferred_and_its_own_search(open_many: OpenMany) -> None:
    async with open_many({"tools": {name_of(7): {"offer": "always"}}}) as host:
        tools = host.executor_for(ALICE).for_anthropic()
        assert tools == await listed(host, "anthropic")
    by_name = {tool["name"]: tool for tool in tools}
    assert len(tools) == len(by_name) == 101
    assert [name for name, tool in by_name.items() if not tool.get("defer_loading")] == [
        name_of(7),
        "tool_search_tool_bm25",
    ]
    assert by_name["tool_search_tool_bm25"] == {
        "type": "tool_search_tool_bm25_20251119",
        "name": "tool_search_tool_bm25",
    }
    assert by_name[name_of(8)].keys() == {"name", "description", "input_schema", "defer_loading"}


async def test_the_responses_api_is_sent_a_namespace_for_each_toolset(open_many: OpenMany) -> None:
    async with open_many({"count": 30}, toolsets=CRM, agents=AGENT) as host:
        tools = host.executor_for(ALICE, agent="clerk").for_openai("responses")
        assert tools == await listed(host, "responses", agent="clerk")
    assert [(tool["type"], tool.get("name")) for tool in tools] == [("namespace", "crm"), ("tool_search", None)]
    assert [tool["name"] for tool in tools[0]["tools"]] == [name_of(number) for number in range(30)]
    assert all(tool["defer_loading"] and tool["type"] == "function" for tool in tools[0]["tools"])


async def test_without_a_toolset_the_responses_api_is_sent_deferred_functions(open_many: OpenMany) -> None:
    async with open_many({"count": 30}) as host:
        tools = host.executor_for(ALICE).for_openai("responses")
    assert [tool["name"] for tool in tools if tool.get("defer_loading")] == [name_of(number) for number in range(30)]
    assert {"type": "tool_search"} in tools


async def test_a_call_in_a_namespace_is_answered(open_many: OpenMany) -> None:
    async with open_many({"count": 30}, toolsets=CRM, agents=AGENT) as host:
        made = {
            "type": "function_call",
            "call_id": "c",
            "name": name_of(3),
            "namespace": "crm",
            "arguments": '{"id":"1"}',
        }
        (answer,) = await host.executor_for(ALICE, agent="clerk").answer([made])
    assert (answer["call_id"], f'"did":"{name_of(3)}"' in answer["output"]) == ("c", True)


async def test_strict_schemas_are_those_of_namespaces_too(open_many: OpenMany) -> None:
    async with open_many({"count": 30}, toolsets=CRM, agents=AGENT) as host:
        tools = host.executor_for(ALICE, agent="clerk")
        chat, responses = tools.for_openai(strict=True), tools.for_openai("responses", strict=True)
    assert [tool["function"].get("strict") for tool in chat] == [True, None]
    assert {tool["strict"] for tool in responses[0]["tools"]} == {True}


@pytest.mark.parametrize(("count", "searched"), [(19, False), (20, True)])
async def test_below_the_threshold_nothing_changes(open_many: OpenMany, count: int, searched: bool) -> None:
    async with open_many({"count": count}) as host:
        tools = host.executor_for(ALICE)
        always = [name_of(number) for number in range(count)]
        assert list(tools.catalog) == [*always, *(TWO if searched else [])]
        assert shown(tools) == (TWO if searched else always)
        assert len(tools.for_anthropic()) == count + searched
        assert any(tool.get("defer_loading") for tool in tools.for_anthropic()) is searched


@pytest.mark.parametrize(
    ("provider", "toolset", "rule", "expected"),
    [
        ("always", None, None, "always"),
        ("search", None, None, "search"),
        ("always", "search", None, "search"),
        ("search", "always", None, "always"),
        ("search", "always", "search", "search"),
        ("always", "search", "always", "always"),
        ("search", "search", "on_request", "on_request"),
    ],
)
async def test_the_rule_of_a_tool_comes_before_its_toolset_and_that_before_its_provider(
    open_many: OpenMany, provider: str, toolset: str | None, rule: str | None, expected: str
) -> None:
    rules = {} if rule is None else {name_of(0): {"offer": rule}}
    crm = {"crm": {**CRM["crm"], **({} if toolset is None else {"offer": toolset})}}
    async with open_many({"offer": provider, "tools": rules}, toolsets=crm, agents=AGENT) as host:
        catalog = host.executor_for(ALICE, agent="clerk").catalog
        assert catalog[f"crm.{name_of(0)}"].definition.offered.how == expected


async def test_a_tool_of_a_provider_keeps_its_name_and_then_nothing_is_deferred(
    open_many: OpenMany, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_many({"extra": ["search_tools"]}) as host:
        tools = host.executor_for(ALICE)
        assert shown(tools) == [*(name_of(number) for number in range(100)), "search_tools"]
        assert tools.catalog["search_tools"].definition.ref.source == "many"
    assert "101 tools are deferred, and all are offered at once" in caplog.text


async def test_the_etag_and_the_order_are_those_of_the_same_tools(open_many: OpenMany) -> None:
    async with open_many() as host:
        first = host.executor_for(ALICE).catalog
    async with open_many() as host:
        second = host.executor_for(ALICE).catalog
    async with open_many({"offer": "always"}) as host:
        undeferred = host.executor_for(ALICE).catalog
    assert first.etag == second.etag != undeferred.etag
    assert list(first)[:100] == list(undeferred)


async def test_the_catalog_for_people_says_how_each_tool_is_offered(open_many: OpenMany) -> None:
    kept = {"tools": {name_of(7): {"offer": "always"}}}
    async with open_many(kept, toolsets=CRM) as host, client_of(create_app(host)) as client:
        tools = (await client.get("/api/catalog", headers=ALICE_KEY)).json()["tools"]
    offers = {tool["name"]: tool.get("offer", "always") for tool in tools}
    assert (offers[name_of(7)], offers[name_of(8)], offers[f"crm.{name_of(8)}"]) == ("always", "search", "search")
    assert not {*TWO} & offers.keys()


async def test_explain_says_that_a_tool_is_deferred_and_how_it_is_found(open_many: OpenMany) -> None:
    async with open_many({"tools": {name_of(7): {"offer": "always"}}}) as host:
        deferred = host.explain(name_of(8), ALICE)
        always = host.explain(name_of(7), ALICE)
    async with open_many({"count": 19}) as host:
        few = host.explain(name_of(8), ALICE)
    assert [
        setting.value for each in (deferred, always, few) for setting in each.settings if setting.name == "offer"
    ] == [
        "search (deferred, found by: rename, invoice, 8, department, system, record; 1 of 100 tools are shown)",
        "always",
        "search (shown all the same, as fewer than 20 tools are deferred)",
    ]
