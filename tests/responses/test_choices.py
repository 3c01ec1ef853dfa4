"""Which tools a request may use: stubs, tool_choice, allowed_tools, and providers that are offered on request."""

from __future__ import annotations

from typing import Any

import pytest
from tests.responses.backend.script import Call, calls, says
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.leaves("task", "thread")]

ADD = Call("add", '{"a": 1, "b": 2}')
FORCED = {"type": "function", "function": {"name": "add"}}


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


def choices(harness: Harness) -> list[object]:
    """The tool_choice of each request to the backend."""
    return [asked.body.get("tool_choice") for asked in harness.backend.asked]


@pytest.mark.requirement("I6-1-tool-choice")
@pytest.mark.parametrize("choice", ["auto", "none", "required"])
async def test_a_mode_is_sent_on_and_echoed(harness: Harness, choice: Any) -> None:
    harness.backend.plays(says("Hello"))
    answer = await harness.create(tool_choice=choice)
    assert answer.tool_choice == choice
    assert choices(harness) in ([choice], [None] if choice == "auto" else [choice])


@pytest.mark.requirement("I6-1-tool-choice")
async def test_a_chosen_function_is_forced_for_the_first_turn_only(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), says("3"))
    choice = {"type": "function", "name": "add"}
    answer = await harness.post(model=MODEL, input="Go", tool_choice=choice)
    assert choices(harness)[0] == FORCED
    assert choices(harness)[1] in ("auto", None)
    assert answer.json()["tool_choice"] == choice


@pytest.mark.requirement("I6-1-tool-choice")
async def test_required_holds_for_the_first_turn_only(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), says("3"))
    await harness.create(tool_choice="required")
    assert choices(harness)[0] == "required"
    assert choices(harness)[1] in ("auto", None)


@pytest.mark.requirement("I6-1-tool-choice", "I6-1-stubs")
async def test_a_choice_of_a_hosted_type_is_mapped_to_its_function(harness: Harness) -> None:
    harness.backend.plays(calls(Call("web_search", '{"query": "otters"}')), says("Found."))
    choice = {"type": "web_search"}
    answer = await harness.post(model=MODEL, input="Go", tools=[choice], tool_choice=choice)
    assert choices(harness)[0] == {"type": "function", "function": {"name": "web_search"}}
    assert answer.json()["tool_choice"] == choice


@pytest.mark.requirement("C-9-allowed-tools")
@pytest.mark.parametrize(
    "members",
    [
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}},
        {"allowed_tools": ["add"]},
        {"allowed_tools": [{"type": "function", "name": "add"}]},
        {
            "allowed_tools": ["add", "whoami"],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "add"}, {"type": "function", "name": "fail"}],
            },
        },
    ],
)
async def test_only_allowed_tools_are_offered_and_run(harness: Harness, members: dict[str, Any]) -> None:
    harness.backend.plays(calls(ADD, Call("whoami", "{}", "call_2")), says("3"))
    answer = await harness.post(model=MODEL, input="Go", **members)
    output = answer.json()["output"]
    assert harness.backend.asked[0].tool_names == ["add"]
    assert [(item["type"], item.get("status")) for item in output] == [
        ("mcp_call", "completed"),
        ("mcp_call", "failed"),
        ("message", "completed"),
    ]
    assert output[1]["server_label"] == output[0]["server_label"]
    told = [message["content"] for message in harness.backend.asked[1].messages if message["role"] == "tool"]
    assert told == ["3", "tool whoami is not in the allowed_tools list"]


@pytest.mark.requirement("C-9-allowed-tools")
async def test_allowed_tools_may_be_required(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), says("3"))
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    answer = await harness.post(model=MODEL, input="Go", tool_choice=choice)
    assert answer.json()["tool_choice"] == choice
    assert choices(harness)[0] == "required"
    assert choices(harness)[1] in ("auto", None)


@pytest.mark.requirement("I6-1-stubs", "C-9-offered")
async def test_a_stub_is_expanded_with_its_options(harness: Harness) -> None:
    harness.backend.plays(calls(Call("look_up", '{"word": "otter"}')), says("An animal."))
    answer = await harness.post(model=MODEL, input="Go", tools=[{"type": "look_up", "depth": 3}])
    assert answer.json()["output"][0]["output"] == "otter at depth 3"
    names = harness.backend.asked[0].tool_names
    assert names[0] == "look_up"
    assert len(set(names)) == len(names)


@pytest.mark.requirement("C-4-http-strict")
@pytest.mark.parametrize(
    "strict", [{"headers": {"X-Toolplug-Strict": "true"}}, {"metadata": {"toolplug_strict": "true"}}]
)
@pytest.mark.parametrize("stub", [{"type": "image_generation"}, {"type": "look_up", "wings": 2}])
async def test_a_strict_request_with_a_stub_that_nobody_matches_is_refused(
    harness: Harness, strict: dict[str, Any], stub: dict[str, Any]
) -> None:
    body = {"model": MODEL, "input": "Go", "tools": [stub], "metadata": strict.get("metadata", {})}
    answer = await harness.http.post("/v1/responses", json=body, headers=strict.get("headers", {}))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "unmatched_stub", "tools[0]")
    assert harness.backend.asked == []


@pytest.mark.requirement("C-4-http-strict")
async def test_a_stub_that_nobody_matches_is_otherwise_dropped_with_a_warning(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    answer = (await harness.post(model=MODEL, input="Go", tools=[{"type": "image_generation"}])).json()
    assert answer["tools"] == [{"type": "image_generation"}]
    (warning,) = answer["toolplug"]["warnings"]
    assert (warning["code"], warning["index"], warning["type"]) == ("unmatched_stub", 0, "image_generation")


@pytest.mark.requirement("C-9-on-request")
@pytest.mark.parametrize(
    "members",
    [
        {"tools": [{"type": "shelf"}]},
        {"tool_choice": {"type": "shelf"}},
        {"tool_choice": {"type": "function", "name": "fetch_book"}},
        {
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "fetch_book"}],
            }
        },
    ],
)
async def test_a_provider_on_request_is_offered_to_who_names_it(harness: Harness, members: dict[str, Any]) -> None:
    harness.backend.plays(calls(Call("fetch_book", '{"title": "Otters"}')), says("Here."))
    answer = await harness.post(model=MODEL, input="Go", **members)
    assert "fetch_book" in harness.backend.asked[0].tool_names
    assert answer.json()["output"][0]["output"] == "here is Otters"


@pytest.mark.requirement("C-9-on-request")
async def test_a_provider_on_request_is_not_offered_to_others(harness: Harness) -> None:
    harness.backend.plays(calls(Call("fetch_book", '{"title": "Otters"}')), says("No."))
    answer = await harness.post(model=MODEL, input="Go")
    assert "fetch_book" not in harness.backend.asked[0].tool_names
    failed = answer.json()["output"][0]
    assert (failed["status"], failed["output"]) == ("failed", 'no builtin provider handles tool "fetch_book"')


@pytest.mark.requirement("C-9-offered")
async def test_a_function_of_the_request_wins_over_a_tool_of_its_name(harness: Harness) -> None:
    harness.backend.plays(calls(ADD))
    answer = await harness.create(tools=[{"type": "function", "name": "add", "parameters": {"type": "object"}}])
    assert harness.backend.asked[0].tool_names.count("add") == 1
    assert [item.type for item in answer.output] == ["function_call"]
    assert harness.board.log == []
