"""The loop as a library: any executor, any backend, no HTTP."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from tests.responses.library.scripted_model import ScriptedModel, Sums, adding, calls, made, says

from toolplug import Catalog, FunctionRegistry
from toolplug.errors import BackendFailed, ResponseRefused
from toolplug.responses import CallPart, Delta, Loop, ResponseBuilder, ResponseRequest, ToolCaller

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("SC-001", "I6-1-loop", "C-9-offered")
async def test_any_host_can_make_a_response_of_an_executor_and_a_backend() -> None:
    model = ScriptedModel(calls(adding(1, 2)), says("3"))
    request = ResponseRequest(input="How much is 1 + 2?")
    async with FunctionRegistry({"sums": Sums()}) as registry:
        events = await made(model, request, registry)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    last = events[-1]
    assert last["type"] == "response.completed"
    assert [message["role"] for message in _messages(model, 1)] == ["user", "assistant", "tool"]
    assert _messages(model, 1)[2]["content"] == "3"
    assert model.closed == 2


@pytest.mark.requirement("I6-bad-disconnect")
async def test_a_loop_that_is_closed_leaves_a_cancelled_draft_with_what_was_said() -> None:
    model = ScriptedModel([Delta(text="Once "), Delta(text="upon"), Delta(text=" a time", finish="stop")])
    async with FunctionRegistry({}) as registry:
        loop = Loop(model, ToolCaller(registry), ResponseRequest(input="Tell", stream=True))
        async with aclosing(loop.events()) as events:
            async for event in events:
                if event.get("delta") == "upon":
                    break
    message = loop.draft.output[0]
    assert (loop.draft.status, message["status"]) == ("cancelled", "incomplete")
    assert message["content"] == [{"type": "output_text", "text": "Once upon", "annotations": [], "logprobs": []}]
    assert model.closed == 1


@pytest.mark.requirement("I6-1-backend-errors")
async def test_who_waits_for_the_whole_answer_and_has_nothing_gets_the_failure() -> None:
    model = ScriptedModel([BackendFailed("backend_error", "broken")])
    async with FunctionRegistry({}) as registry:
        with pytest.raises(BackendFailed, match="broken"):
            await made(model, ResponseRequest(input="Hi"), registry)


@pytest.mark.requirement("I6-1-backend-errors")
async def test_what_was_made_before_a_failure_is_kept() -> None:
    model = ScriptedModel(calls(adding(1, 2)), [BackendFailed("backend_error", "broken")])
    async with FunctionRegistry({"sums": Sums()}) as registry:
        events = await made(model, ResponseRequest(input="Hi"), registry)
    response = events[-1]["response"]
    assert isinstance(response, dict)
    assert (response["status"], response["error"]) == ("failed", {"code": "backend_error", "message": "broken"})
    assert [item["output"] for item in response["output"]] == ["3"]


@pytest.mark.requirement("I6-bad-same-id")
async def test_calls_with_one_id_or_one_place_are_calls_of_their_own() -> None:
    twice = calls(adding(1, 2), adding(3, 4), adding(5, 6, place=1))
    model = ScriptedModel(twice, says("done"))
    async with FunctionRegistry({"sums": Sums()}) as registry:
        loop = Loop(model, ToolCaller(registry), ResponseRequest(input="Hi"))
        async for _ in loop.events():
            pass
    made_here = loop.draft.output[:-1]
    ids = [item["call_id"] for item in made_here]
    assert ids[0] == "call_1"
    assert len(set(ids)) == len(ids)


@pytest.mark.requirement("C-9-client-turn")
async def test_a_mixed_turn_shows_its_hosted_call_behind_the_clients_and_makes_it_once() -> None:
    own = {"type": "function", "name": "city"}
    mixed = calls(adding(1, 2), CallPart(1, "call_2", "city", "{}"))
    async with FunctionRegistry({"sums": Sums()}) as registry:
        first = Loop(ScriptedModel(mixed), ToolCaller(registry), ResponseRequest(input="Hi", tools=[own]))
        async for _ in first.events():
            pass
        made = first.draft.output
        assert [(item["type"], item["name"]) for item in made] == [("function_call", "city"), ("mcp_call", "add")]
        answer = {"type": "function_call_output", "call_id": made[0]["call_id"], "output": "Cork"}
        model = ScriptedModel(says("3 in Cork"))
        second = Loop(model, ToolCaller(registry), ResponseRequest(input=[answer], tools=[own]))
        async for _ in second.events([*first.sent, *made]):
            pass
        assert [item["type"] for item in second.draft.output] == ["message"]
        _, called, *answers = _messages(model, 0)
        assert [call["id"] for call in called["tool_calls"]] == ["call_2", "call_1"]
        assert {each["tool_call_id"]: each["content"] for each in answers} == {"call_1": "3", "call_2": "Cork"}


@pytest.mark.requirement("C-9-backend-bounded")
async def test_whatever_goes_wrong_in_the_middle_ends_the_stream_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    async with FunctionRegistry({"sums": Sums()}) as registry:
        left = [registry.catalog, registry.catalog]

        async def listing() -> Catalog:
            return left.pop()

        model = ScriptedModel(calls(adding(1, 2)), says("3"))
        loop = Loop(model, ToolCaller(registry, listing=listing), ResponseRequest(input="Hi", stream=True))
        events = [event async for event in loop.events()]
    final = events[-1]
    assert final["type"] == "response.failed"
    assert loop.draft.object()["error"] == {"code": "server_error", "message": "internal error"}
    assert "pop from empty list" in caplog.text


@pytest.mark.requirement("I6-bad-requests")
async def test_a_request_without_a_model_is_refused_where_there_is_no_default() -> None:
    model = ScriptedModel()
    model.default_model = None
    async with FunctionRegistry({}) as registry:
        with pytest.raises(ResponseRefused) as refused:
            Loop(model, ToolCaller(registry), ResponseRequest(input="Hi"))
    assert refused.value.param == "model"


@pytest.mark.requirement("I6-1-loop")
def test_items_are_never_changed_in_place() -> None:
    draft = ResponseBuilder(ResponseRequest(input="Hi"), "m", 0.0)
    draft.added({"id": "msg_1", "type": "message", "status": "in_progress"})
    before = draft.object()
    draft.cancel()
    assert before["output"] == [{"id": "msg_1", "type": "message", "status": "in_progress"}]
    assert draft.output[0]["status"] == "incomplete"


def _messages(model: ScriptedModel, turn: int) -> list[dict[str, object]]:
    messages = model.asked[turn]["messages"]
    assert isinstance(messages, list)
    return messages
