"""Tool search in `/v1/responses`, with the real `openai` client and a scripted Chat Completions backend."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.responses.backend.script import Call, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import Harness
from tests.search.many_provider import name_of

from toolplug import Principal
from toolplug.parts.responses.items.hosted import ticket_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.leaves("task", "thread"),
    pytest.mark.requirement("C-9-tool-search"),
]

TWO = ["search_tools", "call_tool"]
SEARCH = Call("search_tools", '{"query": "merge the branch", "limit": 2}', "call_1")
MERGE = Call(name_of(37), '{"id": "7"}', "call_2")
LATER: dict[str, Any] = {
    "type": "function",
    "name": "open_door",
    "description": "Open the door of a building.",
    "parameters": {"type": "object", "properties": {"floor": {"type": "integer"}}},
    "defer_loading": True,
}


IGNORED = "tools[1]: only the model calls functions here, so allowed_callers is ignored"
UNSEARCHED = "tools[0]: defer_loading needs a tool of type tool_search in the request; the function is offered at once"


@pytest.fixture
async def harness(staging: Staging, many_package: None) -> Harness:
    """A host with a hundred tools that are searched for, and one that is always offered."""
    rules = {name_of(0): {"offer": "always"}, name_of(9): "ask"}
    many = {"enabled": True, "offer": "search", "count": 100, "tools": rules}
    return await staging(providers={"many": many})


def names(harness: Harness) -> list[list[str]]:
    """The names of the tools in each request to the backend."""
    return [asked.tool_names for asked in harness.backend.asked]


def items(response: Any) -> list[tuple[str, object, object]]:
    """The type, name and status of each item."""
    return [(item["type"], item.get("name"), item.get("status")) for item in response.to_dict()["output"]]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_search_finds_is_offered_after_the_others_from_then_on(harness: Harness, stream: bool) -> None:
    harness.backend.plays(calls(SEARCH), calls(MERGE), says("Merged."))
    if stream:
        response: Any = (await harness.stream("Merge branch 7"))[-1].response  # type: ignore[union-attr]
    else:
        response = await harness.create("Merge branch 7")
    assert names(harness)[0] == [name_of(0), *TWO]
    assert names(harness)[1] == names(harness)[2]
    assert names(harness)[1][:3] == names(harness)[0]
    assert (len(names(harness)[1]), names(harness)[1][3]) == (5, name_of(37))
    assert items(response) == [
        ("mcp_call", "search_tools", "completed"),
        ("mcp_call", name_of(37), "completed"),
        ("message", None, "completed"),
    ]


async def test_found_tools_stay_with_previous_response_id_and_with_items_that_are_sent_back(harness: Harness) -> None:
    harness.backend.plays(calls(SEARCH), says("Found."), says("One."), says("Two."), says("Three."))
    first = await harness.create("Merge branch 7")
    await harness.create("Go on", previous_response_id=first.id)
    sent = [{"role": "user", "content": "Merge"}, *first.to_dict()["output"], {"role": "user", "content": "Go on"}]  # type: ignore[misc]
    await harness.create(sent)
    await harness.create("Something else")
    assert names(harness)[1][3] == name_of(37)
    assert names(harness)[2] == names(harness)[3] == names(harness)[1]
    assert names(harness)[4] == names(harness)[0]


async def test_call_tool_is_shown_approved_and_remembered_as_the_call_of_its_tool(harness: Harness) -> None:
    through = Call("call_tool", orjson.dumps({"name": name_of(9), "arguments": {"id": "1"}}).decode(), "call_1")
    harness.backend.plays(calls(through), says("Shared."))
    response = (await harness.create("Share it", metadata={"toolplug_approvals": "items"})).to_dict()
    asked: Any = response["output"]
    assert [(item["type"], item["name"], item["arguments"]) for item in asked] == [
        ("mcp_approval_request", name_of(9), '{"id":"1"}')
    ]
    approved = {"type": "mcp_approval_response", "approval_request_id": asked[0]["id"], "approve": True}
    root = Principal(subject="root", tenant="t1", scopes=frozenset({"admin"}))
    await harness.host.approvals.decide(ticket_of(asked[0]["id"]), "approve", root)
    second = await harness.create([approved], previous_response_id=response["id"])  # type: ignore[list-item]
    assert items(second) == [("mcp_call", name_of(9), "completed"), ("message", None, "completed")]
    assert names(harness)[1] == [name_of(0), *TWO, name_of(9)]


async def test_a_search_of_ten_thousand_tools_keeps_the_request_small(staging: Staging, many_package: None) -> None:
    harness = await staging(providers={"many": {"enabled": True, "offer": "search", "count": 10_000}})
    harness.backend.plays(calls(SEARCH), says("Done."))
    await harness.create("Merge branch 7")
    assert [len(orjson.dumps(asked.body["tools"])) < 10_000 for asked in harness.backend.asked] == [True, True]


async def test_a_clients_own_deferred_function_is_found_and_given_back_as_sent(harness: Harness) -> None:
    search = Call("search_tools", '{"query": "open a door", "limit": 1}', "call_1")
    harness.backend.plays(calls(search), calls(Call("house__open_door", '{"floor": 3}', "call_2")), says("Open."))
    space = {"type": "namespace", "name": "house", "description": "The building.", "tools": [LATER]}
    response = await harness.create("Open it", tools=[{"type": "tool_search"}, space])  # type: ignore[list-item]
    assert names(harness)[0] == [name_of(0), *TWO]
    assert names(harness)[1] == [name_of(0), *TWO, "house__open_door"]
    told = orjson.loads(harness.backend.asked[1].messages[-1]["content"])
    assert told["tools"] == [
        {"name": "house__open_door", "description": LATER["description"], "parameters": LATER["parameters"]}
    ]
    call: Any = response.to_dict()["output"][-1]  # type: ignore[index]
    assert (call["type"], call["namespace"], call["name"], call["arguments"]) == (
        "function_call",
        "house",
        "open_door",
        '{"floor": 3}',
    )
    assert [tool.type for tool in response.tools] == ["tool_search", "namespace"]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
    await harness.create(
        [answer],  # type: ignore[list-item]
        previous_response_id=response.id,
        tools=[{"type": "tool_search"}, space],  # type: ignore[list-item]
    )
    assert names(harness)[2] == names(harness)[1]


async def test_a_clients_functions_are_searched_where_the_host_defers_nothing(staging: Staging) -> None:
    harness = await staging()
    search = Call("search_tools", '{"query": "door"}', "call_1")
    harness.backend.plays(calls(search), calls(Call("open_door", "{}", "call_2")))
    response = await harness.create("Open it", tools=[LATER, {"type": "tool_search"}])  # type: ignore[list-item]
    assert names(harness)[0][-2:] == TWO
    assert names(harness)[1][-1] == "open_door"
    assert response.output[-1].type == "function_call"


async def test_a_function_of_the_client_is_not_called_through_call_tool(harness: Harness) -> None:
    harness.backend.plays(calls(Call("call_tool", '{"name": "open_door"}')), says("I see."))
    response: Any = (await harness.create("Open it", tools=[LATER, {"type": "tool_search"}])).to_dict()  # type: ignore[list-item]
    assert (response["output"][0]["status"], response["output"][0]["output"]) == (
        "failed",
        "open_door is a function of the client; call it itself, not through call_tool",
    )
    assert names(harness)[1][-1] == "open_door"


@pytest.mark.parametrize(
    ("tools", "warnings"),
    [
        (
            [LATER],
            [UNSEARCHED],
        ),
        (
            [{"type": "tool_search"}, {**LATER, "allowed_callers": ["programmatic"]}],
            [IGNORED],
        ),
        (
            [{"type": "tool_search", "execution": "client"}],
            ["this host searches itself, so execution: client is ignored"],
        ),
        ([{"type": "tool_search"}], []),
    ],
)
async def test_what_cannot_be_honoured_is_a_warning(harness: Harness, tools: Any, warnings: list[str]) -> None:
    harness.backend.plays(says("Hello"))
    response: Any = (await harness.create("Hello", tools=tools)).to_dict()
    assert [each["message"] for each in response.get("toolplug", {}).get("warnings", [])] == warnings


async def test_a_deferred_tool_that_the_request_names_is_offered_at_once(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Hello"))
    chosen: Any = {"type": "function", "name": name_of(37)}
    await harness.create("Go", tool_choice=chosen)
    await harness.create("Go", tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [chosen]})
    assert names(harness) == [[name_of(0), name_of(37), *TWO], [name_of(37)]]


async def test_a_deferred_tool_is_called_without_a_search(harness: Harness) -> None:
    harness.backend.plays(calls(MERGE), says("Merged."))
    response = await harness.create("Merge")
    assert items(response)[0] == ("mcp_call", name_of(37), "completed")
    assert names(harness)[1] == [name_of(0), *TWO, name_of(37)]


@pytest.mark.parametrize("kind", ["tool_search_call", "tool_search_output"])
async def test_the_searches_of_another_server_are_ignored_and_named(harness: Harness, kind: str) -> None:
    harness.backend.plays(says("Gone."))
    item = {"type": kind, "id": "s", "execution": "server", "call_id": None, "status": "completed"}
    response: Any = (await harness.create([{"role": "user", "content": "Go"}, item])).to_dict()  # type: ignore[list-item]
    (warning,) = response["toolplug"]["warnings"]
    assert (warning["code"], warning["param"], warning["type"]) == ("unknown_item", "input[1]", kind)
    assert [message["role"] for message in harness.backend.asked[0].body["messages"]] == ["user"]


async def test_a_search_is_an_item_of_the_provider_that_makes_it(harness: Harness) -> None:
    harness.backend.plays(calls(SEARCH), says("Found."))
    search: Any = (await harness.create("Merge branch 7", tools=[{"type": "tool_search"}])).to_dict()["output"][0]  # type: ignore[list-item, index]
    assert (search["type"], search["server_label"], search["name"]) == ("mcp_call", "_search", "search_tools")
    assert orjson.loads(search["output"])["tools"][0]["name"] == name_of(37)


async def test_a_found_tool_that_is_gone_is_no_longer_offered(harness: Harness) -> None:
    harness.backend.plays(calls(SEARCH), says("Found."), calls(MERGE), says("It is gone."))
    first = await harness.create("Merge branch 7")
    host = harness.host
    host.registry.publish(host.registry.catalog.where(lambda tool: tool.definition.name != name_of(37)))
    response: Any = (await harness.create("Go on", previous_response_id=first.id)).to_dict()
    assert name_of(37) in names(harness)[1]
    assert name_of(37) not in names(harness)[2]
    assert (response["output"][0]["status"], response["output"][0]["output"]) == (
        "failed",
        f'no builtin provider handles tool "{name_of(37)}"',
    )
