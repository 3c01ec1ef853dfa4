"""Tools that a request brings besides plain functions: namespaces, servers by their label, and options we ignore."""

from __future__ import annotations

from typing import Any

import pytest
from openai import NotFoundError
from tests.responses.backend.script import Call, calls, says
from tests.responses.harness import MODEL, Harness, call_id_of

from toolplug.parts.responses.limits import MAX_TOOLS

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.leaves("task", "thread"),
    pytest.mark.requirement("C-9-request-tools"),
]

FIND: dict[str, Any] = {"type": "function", "name": "find", "description": "Find a customer.", "parameters": {}}
NOTE: dict[str, Any] = {"type": "custom", "name": "note"}
CRM: dict[str, Any] = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [FIND, NOTE]}


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


async def made(harness: Harness, **members: Any) -> dict[str, Any]:
    answer = await harness.post(**{"model": MODEL, "input": "Go", **members})
    assert answer.status_code == 200, answer.text
    return answer.json()


def warnings(response: dict[str, Any]) -> list[tuple[str, int, str]]:
    given = response.get("toolplug", {}).get("warnings", [])
    return [(each["code"], each["index"], each["type"]) for each in given]


@pytest.mark.parametrize("stream", [False, True])
async def test_functions_in_a_namespace_are_the_clients_own(harness: Harness, stream: bool) -> None:
    find, note = Call("crm__find", '{"name": "Ann"}', "call_1"), Call("crm__note", '{"input": "nice"}', "call_2")
    harness.backend.plays(calls(find, note), says("Done."))
    if stream:
        first = (await harness.stream("Go", tools=[CRM]))[-1].response.to_dict()  # type: ignore[union-attr]
    else:
        first = await made(harness, tools=[CRM])
    assert first["tools"][0]["name"] == "crm"
    assert warnings(first) == []
    assert harness.backend.asked[0].tool_names[:2] == ["crm__find", "crm__note"]
    shown = [
        {name: item.get(name) for name in ("type", "namespace", "name", "arguments", "input")}
        for item in first["output"]
    ]
    assert shown == [
        {"type": "function_call", "namespace": "crm", "name": "find", "arguments": '{"name": "Ann"}', "input": None},
        {"type": "custom_tool_call", "namespace": "crm", "name": "note", "arguments": None, "input": "nice"},
    ]
    answers = [
        {"type": "function_call_output", "call_id": call_id_of(first, "find"), "output": "Ann Otter"},
        {"type": "custom_tool_call_output", "call_id": call_id_of(first, "note"), "output": "ok"},
    ]
    await made(harness, input=[{"role": "user", "content": "Go"}, *first["output"], *answers], tools=[CRM])
    (told,) = [message for message in harness.backend.asked[1].messages if message["role"] == "assistant"]
    assert [call["function"]["name"] for call in told["tool_calls"]] == ["crm__find", "crm__note"]


LATER: list[dict[str, Any]] = [
    {"type": "additional_tools", "role": "developer", "tools": [CRM, {**FIND, "description": "Old."}]},
    {"role": "user", "content": "Go"},
    {"type": "additional_tools", "role": "developer", "tools": [FIND]},
]
"""The tools of a request as Codex sends them to the newest models."""


@pytest.mark.requirement("I32-additional-tools")
@pytest.mark.parametrize("stream", [False, True])
async def test_tools_in_items_of_the_input_are_offered(harness: Harness, stream: bool) -> None:
    harness.backend.plays(calls(Call("crm__note", '{"input": "nice"}', "call_1")))
    own = {**FIND, "name": "own"}
    if stream:
        response = (await harness.stream(LATER, tools=[own]))[-1].response.to_dict()  # type: ignore[union-attr]
    else:
        response = await made(harness, input=LATER, tools=[own])
    (asked,) = harness.backend.asked
    assert asked.tool_names[:4] == ["own", "crm__find", "crm__note", "find"]
    assert asked.body["tools"][3]["function"]["description"] == "Find a customer."
    assert asked.messages == [{"role": "user", "content": "Go"}]
    assert warnings(response) == []
    (call,) = response["output"]
    assert (call["type"], call["namespace"], call["name"]) == ("custom_tool_call", "crm", "note")


@pytest.mark.requirement("I32-additional-tools")
async def test_an_item_of_tools_has_a_list_of_them(harness: Harness) -> None:
    refused = await harness.post(model=MODEL, input=[{"type": "additional_tools", "role": "developer", "tools": 7}])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0].tools")
    tools = [{**FIND, "name": f"t{number}"} for number in range(MAX_TOOLS + 1)]
    refused = await harness.post(model=MODEL, input=[{"type": "additional_tools", "tools": tools}])
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "tools")


async def test_a_choice_may_name_a_function_in_a_namespace(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Hello"))
    named = {"type": "function", "namespace": "crm", "name": "find"}
    await made(harness, tools=[CRM], tool_choice=named)
    await made(harness, tools=[CRM], allowed_tools=[named])
    forced, allowed = harness.backend.asked
    assert forced.body["tool_choice"] == {"type": "function", "function": {"name": "crm__find"}}
    assert allowed.tool_names == ["crm__find"]


async def test_what_this_host_cannot_honour_is_a_warning(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    later = {**FIND, "defer_loading": True, "allowed_callers": ["programmatic"]}
    tools = [{**CRM, "tools": [later]}, {"type": "tool_search"}, {**FIND, "name": "own", "allowed_callers": ["direct"]}]
    response = await made(harness, tools=tools)
    assert sorted(warnings(response)) == [
        ("options_ignored", 0, "function"),
        ("options_ignored", 2, "function"),
    ]
    assert [tool["type"] for tool in response["tools"]] == ["namespace", "tool_search", "function"]
    names = harness.backend.asked[0].tool_names
    assert (names[0], names[-2:]) == ("own", ["search_tools", "call_tool"])


async def test_a_server_of_the_catalog_is_declared_by_its_label(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Hello"), says("Hello"))
    shelf = {"type": "mcp", "server_label": "shelf", "server_url": "https://elsewhere.example/mcp"}
    assert warnings(await made(harness, tools=[shelf])) == []
    assert (
        warnings(await made(harness, tools=[{"type": "mcp", "server_label": "desk", "allowed_tools": ["add"]}])) == []
    )
    await made(harness, tool_choice={"type": "mcp", "server_label": "desk", "name": "add"})
    declared, filtered, chosen = harness.backend.asked
    assert "fetch_book" in declared.tool_names
    assert {"add", "fail", "web_search"} & set(filtered.tool_names) == {"add", "web_search"}
    assert chosen.body["tool_choice"] == {"type": "function", "function": {"name": "add"}}


async def test_any_other_server_is_an_unmatched_stub(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Hello"))
    away = {"type": "mcp", "server_label": "away", "server_url": "https://elsewhere.example/mcp"}
    response = await made(harness, tools=[FIND, away])
    assert warnings(response) == [("unmatched_stub", 1, "mcp")]
    assert "'away'" in response["toolplug"]["warnings"][0]["message"]
    refused = await harness.post(model=MODEL, input="Go", tools=[FIND, away], metadata={"toolplug_strict": "true"})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, "unmatched_stub", "tools[1]")
    desk = {"type": "mcp", "server_label": "desk", "require_approval": "always"}
    assert warnings(await made(harness, tools=[desk])) == [("options_ignored", 0, "mcp")]


@pytest.mark.requirement("C-9-allowed-tools")
@pytest.mark.parametrize(
    "empty", [{"allowed_tools": []}, {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}]
)
async def test_an_empty_filter_filters_nothing(harness: Harness, empty: dict[str, Any]) -> None:
    harness.backend.plays(calls(Call("add", '{"a": 1, "b": 2}')), says("3"))
    response = await made(harness, **empty)
    assert response["output"][0]["output"] == "3"
    assert "add" in harness.backend.asked[0].tool_names


@pytest.mark.requirement("C-5-models")
async def test_the_models_of_the_backend_are_listed(harness: Harness) -> None:
    harness.backend.models = (
        b'{"object": "list", "data": [{"id": "a", "created": 7, "owned_by": "us"}, {"id": "b"}, 3, {}]}'
    )
    listed = await harness.client.models.list()
    assert [(model.id, model.object, model.created, model.owned_by) for model in listed.data] == [
        ("a", "model", 7, "us"),
        ("b", "model", 0, ""),
    ]


@pytest.mark.requirement("I32-models")
async def test_one_model_of_the_backend_is_read(harness: Harness) -> None:
    harness.backend.models = b'{"object": "list", "data": [{"id": "maker/a", "created": 7}, {"id": "b"}]}'
    model = await harness.client.models.retrieve("maker/a")
    assert (model.id, model.created) == ("maker/a", 7)
    with pytest.raises(NotFoundError) as error:
        await harness.client.models.retrieve("c")
    assert error.value.code == "model_not_found"


@pytest.mark.requirement("I32-models")
@pytest.mark.parametrize("path", ["input_tokens", "compact"])
async def test_what_only_a_models_server_can_do_is_refused_in_words(harness: Harness, path: str) -> None:
    answer = await harness.http.post(f"/v1/responses/{path}", json={"input": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_supported")
    assert answer.json()["error"]["message"].startswith("this host c")
    assert (await harness.http.post("/v1/responses/resp_1")).status_code == 405


@pytest.mark.requirement("C-5-models")
async def test_a_backend_that_lists_no_models_has_its_default(harness: Harness) -> None:
    assert [model.id for model in (await harness.client.models.list()).data] == [MODEL]
    harness.backend.models = b"[]"
    answer = await harness.http.get("/v1/models")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "backend_garbage")
    assert (await harness.http.get("/v1/models", headers={"Authorization": ""})).status_code == 401
