"""A plain response: what the client asks for reaches the backend, and what the backend says comes back."""

from __future__ import annotations

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE
from tests.responses.backend.script import Call, Turn, Usage, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, PATIENCE_S, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.leaves("task", "thread")]

CITY = {"type": "function", "name": "city", "parameters": {"type": "object"}, "strict": None, "description": None}
HOSTED = [
    "add",
    "note",
    "wait",
    "ask_first",
    "fail",
    "panic",
    "draw",
    "look_up",
    "whoami",
    "web_search",
    "file_search",
    "run_code",
    "tide",
]


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


@pytest.mark.requirement("I6-2-plain", "C-9-judges", "I6-5-published")
async def test_a_text_is_one_message(harness: Harness) -> None:
    harness.backend.plays(says("Hello, otter!"))
    answer = await harness.create("Hi")
    assert (answer.status, answer.output_text) == ("completed", "Hello, otter!")
    assert [item.type for item in answer.output] == ["message"]
    assert answer.id.startswith("resp_")
    assert answer.model == MODEL
    asked = harness.backend.asked[0]
    assert asked.messages == [{"role": "user", "content": "Hi"}]
    assert asked.headers["authorization"] == "Bearer backend-key"


@pytest.mark.requirement("C-9-offered", "SC-001")
async def test_the_callers_catalog_is_offered_after_the_requests_own_tools(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    await harness.create(tools=[CITY])
    assert harness.backend.asked[0].tool_names == ["city", *HOSTED]


@pytest.mark.requirement("C-9-echo")
async def test_the_answer_echoes_the_tools_as_they_were_sent(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Hello"))
    bare = (await harness.post(model=MODEL, input="Hi")).json()
    assert (bare["tools"], bare["tool_choice"], bare["parallel_tool_calls"]) == ([], "auto", True)
    sent = [CITY, {"type": "web_search"}, {"type": "look_up", "depth": 2}]
    echoed = (await harness.post(model=MODEL, input="Hi", tools=sent)).json()
    assert echoed["tools"] == sent


@pytest.mark.requirement("I6-1-parameters")
async def test_what_the_client_asks_of_the_model_reaches_the_backend(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    answer = await harness.create(
        "Hi",
        instructions="Be brief.",
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=99,
        metadata={"topic": "otters"},
        text={"format": {"type": "json_object"}, "verbosity": "low"},
        reasoning={"effort": "low"},
        prompt_cache_retention="24h",
    )
    body = harness.backend.asked[0].body
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert {key: value for key, value in body.items() if key not in ("messages", "tools")} == {
        "model": MODEL,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_completion_tokens": 99,
        "response_format": {"type": "json_object"},
        "verbosity": "low",
        "reasoning_effort": "low",
        "prompt_cache_retention": "24h",
    }
    assert (answer.temperature, answer.top_p, answer.max_output_tokens) == (0.5, 0.9, 99)
    assert (answer.instructions, answer.metadata) == ("Be brief.", {"topic": "otters"})


@pytest.mark.requirement("I6-1-parameters")
@pytest.mark.parametrize("effort", ["minimal", "max"])
async def test_an_effort_that_only_the_openai_client_knows_is_sent_on(harness: Harness, effort: str) -> None:
    harness.backend.plays(says("Hello"))
    async with AsyncClient(base_url=harness.url, headers=ALICE, timeout=PATIENCE_S) as unjudged:
        answer = await unjudged.post("/v1/responses", json={"input": "Hi", "reasoning": {"effort": effort}})
    assert answer.json()["reasoning"]["effort"] == effort
    assert harness.backend.asked[0].body["reasoning_effort"] == effort


@pytest.mark.requirement("I6-1-parameters")
async def test_what_was_not_asked_for_is_not_sent(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    await harness.create("Hi")
    assert set(harness.backend.asked[0].body) == {"model", "messages", "tools"}


@pytest.mark.requirement("I6-1-parameters")
async def test_a_schema_of_the_answer_is_sent_on(harness: Harness) -> None:
    harness.backend.plays(says("{}"))
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    await harness.create(text={"format": {"type": "json_schema", "name": "empty", "schema": schema, "strict": True}})
    assert harness.backend.asked[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "empty", "schema": schema, "strict": True},
    }


@pytest.mark.requirement("I6-2-round-trip")
async def test_messages_of_every_role_reach_the_backend(harness: Harness) -> None:
    harness.backend.plays(says("Alice."))
    await harness.create(
        [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "input_text", "text": "I am Alice."}]},
            {"type": "message", "role": "assistant", "content": "Hello Alice."},
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": "https://x.example/a.png", "detail": "low"}],
            },
        ]
    )
    messages = harness.backend.asked[0].messages
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[-1]["content"] == [
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png", "detail": "low"}}
    ]


@pytest.mark.requirement("I6-1-usage")
async def test_usage_is_added_up_over_the_turns(harness: Harness) -> None:
    harness.backend.plays(
        Turn(calls=(Call("add", '{"a": 1, "b": 2}'),), usage=Usage(10, 5, cached=4)),
        Turn(text="3", usage=Usage(20, 7, cached=1, reasoning=2)),
    )
    usage = (await harness.create()).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (30, 12, 42)
    assert usage.input_tokens_details.cached_tokens == 5
    assert usage.output_tokens_details.reasoning_tokens == 2


@pytest.mark.requirement("I6-1-usage")
async def test_a_backend_that_counts_no_tokens_has_no_usage(harness: Harness) -> None:
    harness.backend.plays(Turn(text="Hi", usage=None))
    assert (await harness.create()).usage is None


@pytest.mark.requirement("I6-2-reasoning")
async def test_reasoning_is_an_item_before_the_answer(harness: Harness) -> None:
    harness.backend.plays(Turn(reasoning="Let me think.", text="Four."))
    answer = (await harness.post(model=MODEL, input="2+2?")).json()
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message"]
    assert answer["output"][0]["content"] == [{"type": "reasoning_text", "text": "Let me think."}]
    assert answer["output"][0]["summary"] == []


@pytest.mark.requirement("I6-2-plain")
async def test_a_refusal_is_part_of_the_message(harness: Harness) -> None:
    harness.backend.plays(Turn(refusal="I would rather not."))
    answer = (await harness.post(model=MODEL, input="Do it.")).json()
    assert answer["output"][0]["content"] == [{"type": "refusal", "refusal": "I would rather not."}]


@pytest.mark.requirement("I6-1-limits-of-output")
@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
async def test_an_answer_that_was_cut_short_is_incomplete(harness: Harness, finish: str, reason: str) -> None:
    harness.backend.plays(Turn(text="Once upon", finish=finish))
    answer = await harness.create()
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == reason
    assert [item.status for item in answer.output if item.type == "message"] == ["incomplete"]
    assert answer.output_text == "Once upon"


async def test_the_model_of_the_settings_stands_where_the_request_names_none(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    assert (await harness.post(input="Hi")).json()["model"] == MODEL


async def test_without_the_section_there_is_no_endpoint(staging: Staging) -> None:
    harness = await staging(responses=None)
    answer = await harness.post(model=MODEL, input="Hi")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_configured")


async def test_a_key_without_the_scope_to_call_tools_may_not_ask(harness: Harness) -> None:
    answer = await harness.http.post(
        "/v1/responses", json={"input": "Hi"}, headers={"Authorization": "Bearer reader-key"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope")
    assert harness.backend.asked == []


@pytest.mark.requirement("I6-1-loop")
async def test_results_of_calls_go_back_to_the_model(harness: Harness) -> None:
    harness.backend.plays(calls(Call("add", '{"a": 1, "b": 2}', "call_7")), says("It is 3."))
    answer = await harness.create("1 + 2?")
    assert answer.output_text == "It is 3."
    assert harness.backend.asked[1].messages == [
        {"role": "user", "content": "1 + 2?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_7", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_7", "content": "3"},
    ]
    assert harness.board.log == ["add 1 2"]
