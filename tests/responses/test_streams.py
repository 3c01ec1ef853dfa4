"""Streams: fragments as they come, and every hosted call with a life of its own. Each stream is judged by its laws."""

from __future__ import annotations

import asyncio

import pytest
from tests.responses.backend.script import Call, Gate, Held, Turn, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process]

AROUND = ("response.created", "response.in_progress")


def kinds(harness: Harness) -> list[str]:
    """The types of the last stream's events."""
    return [event["type"] for event in harness.judged.streams[-1].events]


@pytest.mark.requirement("I6-2-streaming", "C-9-sequence", "C-9-judges", "I6-5-published")
async def test_a_text_comes_in_fragments(harness: Harness) -> None:
    harness.backend.plays(Turn(text="Hello, otter!", size=7))
    events = await harness.stream()
    assert kinds(harness) == [
        *AROUND,
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["Hello, ", "otter!"]
    assert [event.sequence_number for event in events] == list(range(10))
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "Hello, otter!"
    assert events[-1].response.usage is not None
    assert harness.backend.asked[0].body["stream_options"] == {"include_usage": True}


@pytest.mark.requirement("I6-2-streaming")
async def test_the_helper_of_the_openai_client_follows_the_stream(harness: Harness) -> None:
    harness.backend.plays(Turn(reasoning="Hm.", text="Hello"))
    async with harness.client.responses.stream(model=MODEL, input="Hi") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "Hello"


@pytest.mark.requirement("I6-2-streaming")
async def test_a_fragment_is_sent_on_before_the_next_one_has_come(harness: Harness) -> None:
    gate = Gate()
    harness.backend.plays(Held(turn=Turn(text="Hello, otter!", size=7), gate=gate, after=2))
    stream = await harness.client.responses.create(model=MODEL, input="Hi", stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            assert event.delta == "Hello, "
            break
    assert not gate.go.is_set()
    gate.go.set()
    assert [event.type for event in [event async for event in stream]][-1] == "response.completed"


@pytest.mark.requirement("I6-2-streaming")
async def test_a_stream_begins_before_the_backend_answers(harness: Harness) -> None:
    gate = Gate()
    harness.backend.plays(Held(turn=says("Hello"), gate=gate))
    stream = await harness.client.responses.create(model=MODEL, input="Hi", stream=True)
    assert (await anext(stream)).type == "response.created"
    await gate.reached.wait()
    gate.go.set()
    assert [event.type for event in [event async for event in stream]][-1] == "response.completed"


@pytest.mark.requirement("C-9-items", "C-9-item-types")
@pytest.mark.parametrize(
    ("call", "life"),
    [
        (Call("web_search", '{"query": "otters"}'), ("response.web_search_call", "searching", "completed")),
        (Call("file_search", '{"query": "otters"}'), ("response.file_search_call", "searching", "completed")),
        (Call("run_code", '{"code": "1 + 1"}'), ("response.code_interpreter_call", "interpreting", "completed")),
        (Call("run_code", '{"code": "raise"}'), ("response.code_interpreter_call", "interpreting", "failed")),
        (Call("run_code", "{}"), ("response.code_interpreter_call", "interpreting", "failed")),
    ],
)
async def test_each_kind_of_hosted_call_has_the_events_of_its_life(
    harness: Harness, call: Call, life: tuple[str, str, str]
) -> None:
    harness.backend.plays(calls(call), says("Done."))
    await harness.stream()
    name, between, end = life
    assert kinds(harness)[2 : kinds(harness).index("response.output_item.done") + 1] == [
        "response.output_item.added",
        f"{name}.in_progress",
        f"{name}.{between}",
        f"{name}.{end}",
        "response.output_item.done",
    ]


@pytest.mark.requirement("C-9-items", "C-9-item-types")
@pytest.mark.parametrize(
    ("call", "server", "end"),
    [
        (Call("tide", '{"place": "Cork"}'), "search", "completed"),
        (Call("look_up", '{"word": "otter"}'), "desk", "completed"),
        (Call("add", '{"a": 1, "b": 2}'), "desk", "completed"),
        (Call("add", '{"a": 1}'), "desk", "failed"),
        (Call("nothing", "{}"), "_unknown", "failed"),
        (Call("nothing", ""), "_unknown", "failed"),
    ],
)
async def test_an_ordinary_call_is_streamed_as_a_call_of_a_server(
    harness: Harness, call: Call, server: str, end: str
) -> None:
    harness.backend.plays(calls(call), says("Done."))
    await harness.stream()
    events = harness.judged.streams[-1].events
    life = events[2 : kinds(harness).index("response.output_item.done") + 1]
    assert [event["type"] for event in life] == [
        "response.output_item.added",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        f"response.mcp_call.{end}",
        "response.output_item.done",
    ]
    added, done = life[0]["item"], life[-1]["item"]
    assert (added["arguments"], life[2]["delta"], life[3]["arguments"]) == ("", call.arguments, call.arguments)
    assert (done["server_label"], done["name"], done["arguments"]) == (server, call.name, call.arguments)
    assert [name for item in (added, done) for name, value in item.items() if value is None] == []


@pytest.mark.requirement("C-9-item-types")
@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (Call("web_search", '{"query": "otters"}'), "web_search_call"),
        (Call("tide", '{"place": "Cork"}'), "acme:tide_call"),
        (Call("look_up", '{"word": "otter"}'), "toolplug:look_up"),
        (Call("add", '{"a": 1, "b": 2}'), "toolplug:tool_call"),
        (Call("nothing", "{}"), "toolplug:tool_call"),
    ],
)
async def test_a_host_may_show_calls_as_items_of_their_own_types(staging: Staging, call: Call, kind: str) -> None:
    harness = await staging(items="extension")
    harness.backend.plays(calls(call), says("Done."))
    await harness.stream()
    added = harness.judged.streams[-1].events[2]
    assert (added["type"], added["item"]["type"]) == ("response.output_item.added", kind)


@pytest.mark.requirement("C-9-items")
async def test_calls_side_by_side_each_have_their_own_events(harness: Harness) -> None:
    harness.backend.plays(
        calls(Call("wait", '{"gate": "a"}', "call_1"), Call("wait", '{"gate": "b"}', "call_2")), says("Done.")
    )
    reading = asyncio.create_task(harness.stream())
    await harness.board.reached["a"].wait()
    await harness.board.reached["b"].wait()
    while kinds(harness).count("response.mcp_call.in_progress") < 2:
        await asyncio.sleep(0)
    added = [event for event in harness.judged.streams[-1].events if event["type"] == "response.output_item.added"]
    assert [event["item"]["call_id"] for event in added] == ["call_1", "call_2"]
    assert [event["item"]["status"] for event in added] == ["in_progress", "in_progress"]
    harness.board.open("b")
    harness.board.open("a")
    final = (await reading)[-1]
    assert final.type == "response.completed"
    assert [item.type for item in final.response.output] == ["mcp_call", "mcp_call", "message"]


@pytest.mark.requirement("I6-2-reasoning")
async def test_reasoning_is_streamed_before_the_answer(harness: Harness) -> None:
    harness.backend.plays(Turn(reasoning="Let me think.", text="Four.", size=20))
    await harness.stream("2+2?")
    seen = kinds(harness)
    assert seen.index("response.reasoning.delta") < seen.index("response.output_text.delta")
    assert "response.reasoning.done" in seen


@pytest.mark.requirement("I6-2-streaming")
async def test_a_refusal_is_streamed(harness: Harness) -> None:
    harness.backend.plays(Turn(refusal="I would rather not."))
    events = await harness.stream()
    assert "".join(event.delta for event in events if event.type == "response.refusal.delta") == "I would rather not."


@pytest.mark.requirement("C-9-client-turn")
async def test_the_arguments_of_a_client_call_are_streamed(harness: Harness) -> None:
    harness.backend.plays(calls(Call("city", '{"name": "Cork"}', "call_9")))
    events = await harness.stream(tools=[{"type": "function", "name": "city", "parameters": {"type": "object"}}])
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert [event.arguments for event in done] == ['{"name": "Cork"}']
    assert "response.function_call_arguments.delta" in kinds(harness)
    final = events[-1]
    assert final.type == "response.completed"
    (call_id,) = [item.call_id for item in final.response.output if item.type == "function_call"]
    assert call_id == f"call_{final.response.id.removeprefix('resp_')}000_call_9"


@pytest.mark.requirement("I6-1-limits-of-output")
async def test_a_stream_that_was_cut_short_ends_as_incomplete(harness: Harness) -> None:
    harness.backend.plays(Turn(text="Once upon", finish="length"))
    await harness.stream()
    assert kinds(harness)[-1] == "response.incomplete"
