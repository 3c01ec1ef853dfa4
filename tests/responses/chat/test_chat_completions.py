"""`POST /v1/chat/completions` through the `openai` client: hosted calls run inside, the client's come back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import APIError, APIStatusError, BadRequestError
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from tests.http.conftest import ALICE
from tests.responses.backend.script import Call, CutOff, Raw, Refused, Turn, Usage, calls, says
from tests.responses.harness import MODEL, Harness

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.requirement("I32-chat"),
    pytest.mark.leaves("task", "thread"),
]

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
CITY: Any = {
    "type": "function",
    "function": {"name": "city", "description": "Find a city.", "parameters": {"type": "object"}},
}
ADD = Call("add", '{"a": 1, "b": 2}', "call_add")
FIND = Call("city", '{"of": "Ada"}', "call_city")
MIXED = Turn(text="I look.", calls=(ADD, FIND))
SOON = {"Retry-After-Ms": "1"}
PATH = "/v1/chat/completions"


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


async def complete(harness: Harness, messages: Any = HELLO, /, **members: Any) -> ChatCompletion:
    return await harness.client.chat.completions.create(model=MODEL, messages=messages, **members)


async def stream(harness: Harness, messages: Any = HELLO, /, **members: Any) -> list[ChatCompletionChunk]:
    chunks = await harness.client.chat.completions.create(model=MODEL, messages=messages, stream=True, **members)
    return [chunk async for chunk in chunks]


async def final(harness: Harness, streamed: bool, **members: Any) -> ChatCompletion:
    """The completion, of a stream as the client's helper puts it together."""
    if not streamed:
        return await complete(harness, **members)
    async with harness.client.chat.completions.stream(model=MODEL, messages=HELLO, **members) as events:
        return await events.get_final_completion()


async def test_a_text_is_answered_in_the_form_of_this_api(harness: Harness) -> None:
    harness.backend.plays(says("Hello, otter!"))
    answer = await complete(harness, store=False)
    (choice,) = answer.choices
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model, choice.index, choice.finish_reason) == ("chat.completion", MODEL, 0, "stop")
    assert (choice.message.role, choice.message.content, choice.message.refusal) == ("assistant", "Hello, otter!", None)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (10, 5, 15)
    assert "toolplug" not in (answer.model_extra or {})


async def test_a_stream_has_chunks_as_the_model_speaks(harness: Harness) -> None:
    harness.backend.plays(Turn(reasoning="Hm.", text="Hello, otter!", size=7))
    chunks = await stream(harness)
    deltas = [chunk.choices[0].delta.model_dump(exclude_unset=True) for chunk in chunks]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm."},
        {"content": "Hello, "},
        {"content": "otter!"},
        {},
    ]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 4 + ["stop"]
    assert {(chunk.id, chunk.object, chunk.model) for chunk in chunks} == {
        (chunks[0].id, "chat.completion.chunk", MODEL)
    }
    assert {chunk.usage for chunk in chunks} == {None}


async def test_a_stream_has_events_without_names_and_ends_with_done(harness: Harness) -> None:
    harness.backend.plays(says("a\u2028b"))
    body = {"model": MODEL, "messages": HELLO, "stream": True}
    answer = await harness.http.post(PATH, json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    assert "usage" not in json.loads(lines[0].removeprefix("data: "))


@pytest.mark.parametrize("streamed", [False, True])
async def test_calls_of_the_hosts_tools_run_inside(harness: Harness, streamed: bool) -> None:
    harness.backend.plays(Turn(text="I add.", calls=(ADD,)), says("3"))
    answer = await final(harness, streamed)
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason, choice.message.tool_calls) == ("I add.\n\n3", "stop", None)
    assert harness.board.log == ["add 1 2"]
    _, called, result = harness.backend.asked[1].messages
    assert (called["content"], called["tool_calls"][0]["function"]["name"]) == ("I add.", "add")
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "call_add", "3")


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_tokens_of_all_turns_are_counted(harness: Harness, streamed: bool) -> None:
    harness.backend.plays(
        Turn(calls=(ADD,), usage=Usage(10, 5, cached=2)), Turn(text="3", usage=Usage(20, 7, reasoning=3))
    )
    members: Any = {"stream_options": {"include_usage": True}} if streamed else {}
    usage = (await final(harness, streamed, **members)).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (30, 12, 42)
    details = usage.model_dump()
    assert details["prompt_tokens_details"]["cached_tokens"] == 2
    assert details["completion_tokens_details"]["reasoning_tokens"] == 3


async def test_a_stream_that_counts_ends_with_a_chunk_without_choices(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    *chunks, last = await stream(harness, stream_options={"include_usage": True})
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
    assert last.choices == []
    assert last.usage is not None


@pytest.mark.parametrize("streamed", [False, True])
async def test_calls_of_the_clients_tools_come_back(harness: Harness, streamed: bool) -> None:
    harness.backend.plays(Turn(calls=(FIND,)))
    answer = await final(harness, streamed, tools=[CITY])
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None if not streamed else "")
    (call,) = choice.message.tool_calls or ()
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("city", '{"of": "Ada"}')
    assert harness.backend.asked[0].body["tools"][0] == CITY


async def test_the_client_answers_its_calls_in_the_next_request(harness: Harness) -> None:
    harness.backend.plays(Turn(calls=(FIND,)), says("Cork."))
    first = (await complete(harness, tools=[CITY])).choices[0].message
    (call,) = first.tool_calls or ()
    result = {"role": "tool", "tool_call_id": call.id, "content": "Cork"}
    sent: list[Any] = [*HELLO, first.model_dump(exclude_none=True), result]
    answer = await complete(harness, sent, tools=[CITY])
    assert answer.choices[0].message.content == "Cork."
    own: Any = {**sent[1], "content": None, "tool_calls": [{**sent[1]["tool_calls"][0], "id": "call_city"}]}
    assert harness.backend.asked[1].messages == [sent[0], own, {**sent[2], "tool_call_id": "call_city"}]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_mixed_turn_runs_its_hosted_calls_and_returns_the_clients(harness: Harness, streamed: bool) -> None:
    harness.backend.plays(MIXED)
    (choice,) = (await final(harness, streamed, tools=[CITY])).choices
    assert [call.function.name for call in choice.message.tool_calls or () if call.type == "function"] == ["city"]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
    assert harness.board.log == ["add 1 2"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_custom_tools_have_a_text(harness: Harness, streamed: bool) -> None:
    harness.backend.plays(calls(Call("draw_sql", '{"input": "select 1"}', "call_sql")), says("Done."))
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}}
    custom: Any = {"type": "custom", "custom": {"name": "draw_sql", "format": grammar}}
    body = {"model": MODEL, "messages": HELLO, "tools": [custom], "stream": streamed}
    body["tool_choice"] = {"type": "custom", "custom": {"name": "draw_sql"}}
    answer = await harness.http.post(PATH, json=body)
    made = {"id": "call_sql", "type": "custom", "custom": {"name": "draw_sql", "input": "select 1"}}
    if streamed:
        chunks = [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if "draw_sql" in line]
        assert chunks[0]["choices"][0]["delta"]["tool_calls"][0]["type"] == "custom"
        return
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert {**call, "id": "call_sql"} == made
    asked = harness.backend.asked[0].body
    assert "start: /.+/" in asked["tools"][0]["function"]["description"]
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "draw_sql"}}
    sent = [*HELLO, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"]}]
    sent[-1]["content"] = "ok"
    assert (await complete(harness, sent, tools=[custom])).choices[0].message.content == "Done."
    (told,) = harness.backend.asked[1].messages[1]["tool_calls"]
    assert (told["type"], told["function"]["name"]) == ("function", "draw_sql")
    assert json.loads(told["function"]["arguments"]) == {"input": "select 1"}


async def test_built_in_tools_are_those_of_a_provider(harness: Harness) -> None:
    harness.backend.plays(calls(Call("look_up", '{"word": "otter"}')), says("An animal."))
    answer = await complete(harness, tools=[{"type": "look_up", "depth": 3}])
    assert answer.choices[0].message.content == "An animal."
    assert harness.backend.asked[1].messages[-1]["content"] == "otter at depth 3"


async def test_citations_are_at_their_place_in_the_whole_text(harness: Harness) -> None:
    search = Turn(text="Wait.", calls=(Call("web_search", '{"query": "otters"}'),))
    harness.backend.plays(search, says("See All about otters."))
    message = (await complete(harness)).choices[0].message
    (note,) = message.annotations or ()
    cited = note.url_citation
    assert (message.content or "")[cited.start_index : cited.end_index] == "All about otters"
    assert cited.url == "https://otters.example/"


@pytest.mark.parametrize(("finish", "reason"), [("length", "length"), ("content_filter", "content_filter")])
async def test_an_answer_that_was_cut_says_why(harness: Harness, finish: str, reason: str) -> None:
    harness.backend.plays(Turn(text="Hel", finish=finish))
    assert (await complete(harness)).choices[0].finish_reason == reason


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_the_server_wants_back_is_in_the_message(harness: Harness, streamed: bool) -> None:
    made = {"id": "c", "type": "function", "function": {"name": "city", "arguments": "{}"}, "extra_content": {"s": 1}}
    message = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **made}], "reasoning_details": [1]}
    choice = {"index": 0, "delta": message, "message": message, "finish_reason": "tool_calls"}
    harness.backend.plays(Raw(piece=json.dumps({"choices": [choice]}).encode()))
    answer = await final(harness, streamed, tools=[CITY])
    told = answer.choices[0].message
    assert (told.model_extra or {})["reasoning_details"] == [1]
    assert ((told.tool_calls or [None])[0].model_extra or {})["extra_content"] == {"s": 1}


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_fault_before_the_first_word_is_an_error_of_the_request(harness: Harness, streamed: bool) -> None:
    harness.backend.plays_for_ever(Refused(status=429, headers={"Retry-After": "7", **SOON}))
    with pytest.raises(APIStatusError) as raised:
        await complete(harness, stream=streamed)
    error = raised.value
    assert (error.status_code, error.code, error.type) == (429, "rate_limit_exceeded", "too_many_requests")
    assert error.response.headers["retry-after"] == "7"


async def test_a_fault_in_the_middle_of_a_stream_is_an_error_of_the_client(harness: Harness) -> None:
    harness.backend.plays(CutOff(turn=Turn(text="Hello, otter!"), after=3))
    read: list[str] = []

    async def read_all() -> None:
        async for chunk in await harness.client.chat.completions.create(model=MODEL, messages=HELLO, stream=True):
            read.append(chunk.choices[0].delta.content or "")

    with pytest.raises(APIError, match="model's server"):
        await read_all()
    assert "".join(read) == "Hello, o"


async def test_a_fault_after_a_call_has_a_status_that_no_client_repeats(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), Refused(status=400))
    with pytest.raises(APIStatusError) as raised:
        await harness.client.with_options(max_retries=2).chat.completions.create(model=MODEL, messages=HELLO)
    assert (raised.value.status_code, raised.value.code) == (422, "failed_after_calls")
    assert harness.board.log == ["add 1 2"]


async def test_who_has_no_key_is_refused_in_the_form_of_this_api(harness: Harness) -> None:
    with pytest.raises(APIStatusError) as raised:
        await harness.client_of("nobody").chat.completions.create(model=MODEL, messages=HELLO)
    assert raised.value.status_code == 401
    assert raised.value.body is not None
    assert set(raised.value.body) >= {"message", "type", "code", "param"}  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["header", "metadata"])
async def test_the_agent_and_the_session_are_chosen_as_for_a_response(harness: Harness, how: str) -> None:
    harness.backend.plays(says("Hi"))
    named = {"toolplug_session": "a" * 64}
    given: Any = {"metadata": named} if how == "metadata" else {}
    headers = {"X-Toolplug-Session": "a" * 64} if how == "header" else {}
    body = {"model": MODEL, "messages": HELLO, **given}
    answers = [
        await harness.http.post(PATH, json=body, headers={**ALICE, **headers}),
        await harness.http.post(
            "/v1/responses", json={"model": MODEL, "input": "Hello", **given}, headers={**ALICE, **headers}
        ),
    ]
    errors = [(answer.status_code, answer.json()["error"]["code"]) for answer in answers]
    assert errors[0] == errors[1]
    assert errors[0][0] >= 400


async def test_a_request_has_one_answer(harness: Harness) -> None:
    with pytest.raises(BadRequestError, match="one answer") as raised:
        await complete(harness, n=2)
    assert raised.value.param == "n"
