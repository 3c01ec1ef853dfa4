"""What the host did in an earlier request is told to the model again, though messages have no place for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.responses.backend.script import Call, Turn, calls, says
from tests.responses.harness import MODEL, Harness

from toolplug.parts.responses.items.chat_history import complete_messages

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.requirement("I32-chat-history"),
    pytest.mark.leaves("task", "thread"),
]

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
CITY: Any = {"type": "function", "function": {"name": "city", "parameters": {"type": "object"}}}
SQL: Any = {"type": "custom", "custom": {"name": "sql"}}
ADD = Call("add", '{"a": 1, "b": 2}', "call_add")
FIND = Call("city", "{}", "call_city")
ASK = Call("ask_first", '{"what": "it"}', "call_ask")


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


async def complete(harness: Harness, messages: list[Any], key: str = "alice-key", **members: Any) -> Any:
    client = harness.client_of(key)
    whole = await client.chat.completions.create(model=MODEL, messages=messages, **members)
    return whole.choices[0].message, whole


def answered(message: Any, result: Any = "Cork") -> list[Any]:
    """The message and the results of its calls, as clients send them back."""
    sent = message.model_dump(exclude_none=True)
    return [sent, *({"role": "tool", "tool_call_id": call.id, "content": result} for call in message.tool_calls)]


def told(harness: Harness) -> list[str]:
    """What the model was told in the last request, a line for each message: its calls, or its content."""
    lines: list[str] = []
    for message in harness.backend.asked[-1].messages:
        made = [f"{call['function']['name']} {call['id']}" for call in message.get("tool_calls", ())]
        said = f"{message['role']} {message['content']}".removesuffix(" None")
        lines.append(f"{said} [{', '.join(made)}]" if made else f"{said} {message.get('tool_call_id', '')}".strip())
    return lines


async def test_a_mixed_turn_is_told_as_it_was(harness: Harness) -> None:
    harness.backend.plays(calls(ADD, FIND), says("3 in Cork."))
    message, _ = await complete(harness, HELLO, tools=[CITY])
    await complete(harness, [*HELLO, *answered(message)], tools=[CITY])
    assert told(harness) == [
        "user Hello",
        "assistant [city call_city, add call_add]",
        "tool Cork call_city",
        "tool 3 call_add",
    ]
    assert harness.board.log == ["add 1 2"]


async def test_turns_of_the_host_before_the_clients_call_are_told_too(harness: Harness) -> None:
    harness.backend.plays(Turn(text="I add.", calls=(ADD,)), Turn(text="I look.", calls=(FIND,)), says("3 in Cork."))
    message, _ = await complete(harness, HELLO, tools=[CITY])
    assert message.content == "I add.\n\nI look."
    parts = [{"type": "text", "text": "Cork"}, {"type": "text", "text": "?"}]
    await complete(harness, [*HELLO, *answered(message, parts), {"role": "user", "content": "So?"}], tools=[CITY])
    lines = told(harness)
    assert [line for line in lines if line.startswith("tool")] == ["tool 3 call_add", f"tool {parts} call_city"]
    assert "".join(lines).count("I add.\n\nI look.") == 1
    assert lines[-1] == "user So?"


async def test_a_turn_of_the_host_without_words_comes_before_the_clients_call(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), calls(FIND), says("3 in Cork."))
    message, _ = await complete(harness, HELLO, tools=[CITY])
    await complete(harness, [*HELLO, *answered(message)], tools=[CITY])
    assert told(harness) == [
        "user Hello",
        "assistant [add call_add]",
        "tool 3 call_add",
        "assistant [city call_city]",
        "tool Cork call_city",
    ]


async def test_calls_with_the_same_id_of_the_model_have_different_ones() -> None:
    sent: list[dict[str, Any]] = []
    for key in ("a" * 32, "b" * 32):
        call = {"id": f"call_{key}000_call_x", "type": "function", "function": {"name": "city", "arguments": "{}"}}
        sent.append({"role": "assistant", "content": None, "tool_calls": [call]})
        sent.append({"role": "tool", "tool_call_id": call["id"], "content": "Cork"})

    async def keep(items: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
        return items

    completed: Any = await complete_messages(sent, keep)
    assert [message["tool_call_id"] for message in completed[1::2]] == ["call_x", f"call_{'b' * 32}000"]
    assert [message["tool_calls"][0]["id"] for message in completed[::2]] == ["call_x", f"call_{'b' * 32}000"]


def made_call(key: str = "a" * 32) -> Any:
    return {"id": f"call_{key}000_call_x", "type": "function", "function": {"name": "city", "arguments": "{}"}}


async def heal_calls(items: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
    """Put a call of the host after each of the client's."""
    add = {"type": "mcp_call", "name": "add", "arguments": "{}", "output": "3", "server_label": "kit"}
    healed: list[Mapping[str, object]] = []
    for number, item in enumerate(items):
        healed.append(item)
        if item["type"] == "function_call":
            healed.append({**add, "id": f"mcp_{'a' * 32}{number:03x}t0", "call_id": f"call_{number}"})
    return healed


async def test_messages_that_say_nothing_stay_where_something_is_put_back() -> None:
    sent: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Then?"},
        {"role": "assistant", "content": None, "tool_calls": [made_call()]},
        {"role": "tool", "tool_call_id": made_call()["id"], "content": "Cork"},
    ]
    completed: Any = await complete_messages(sent, heal_calls)
    assert completed[:3] == sent[:3]
    assert [message["role"] for message in completed[3:]] == ["assistant", "tool", "tool"]


async def test_the_other_fields_of_an_answer_and_of_its_results_stay() -> None:
    answer = {"role": "assistant", "content": "Hm.", "reasoning_content": "Which?", "tool_calls": [made_call()]}
    result = {"role": "tool", "tool_call_id": made_call()["id"], "content": "Cork", "cache_control": {"type": "e"}}
    completed: Any = await complete_messages([answer, result], heal_calls)
    assert [message["reasoning_content"] for message in completed if "reasoning_content" in message] == ["Which?"]
    assert [message["content"] for message in completed if message["role"] == "assistant"].count("Hm.") == 1
    assert {**result, "tool_call_id": "call_x"} in completed


async def test_a_users_message_before_the_result_keeps_its_words() -> None:
    sent: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [made_call()]},
        {"role": "user", "content": "Wait."},
        {"role": "tool", "tool_call_id": made_call()["id"], "content": "Cork"},
    ]
    completed: Any = await complete_messages(sent, heal_calls)
    assert {"role": "user", "content": "Wait."} in completed
    assert [message["content"] for message in completed if message["role"] == "tool"].count("3") == 1


async def test_a_custom_tools_call_brings_its_turn_back(harness: Harness) -> None:
    harness.backend.plays(calls(ADD, Call("sql", '{"input": "select 1"}', "call_sql")), says("Done."))
    message, _ = await complete(harness, HELLO, tools=[SQL])
    await complete(harness, [*HELLO, *answered(message, "1")], tools=[SQL])
    assert told(harness)[1:] == ["assistant [sql call_sql, add call_add]", "tool 1 call_sql", "tool 3 call_add"]


async def test_several_turns_are_each_told_in_their_place(harness: Harness) -> None:
    harness.backend.plays(calls(ADD, FIND), calls(ADD, FIND), says("Done."))
    sent = [*HELLO]
    for _ in range(2):
        message, _ = await complete(harness, sent, tools=[CITY])
        sent += answered(message)
    await complete(harness, sent, tools=[CITY])
    lines = told(harness)
    assert [line.split(" ")[0] for line in lines] == ["user", *["assistant", "tool", "tool"] * 2]
    assert [line.rsplit(" ", 1)[0] for line in lines if line.startswith("tool")] == ["tool Cork", "tool 3"] * 2


async def test_an_answer_that_the_client_has_changed_stays_as_it_came(harness: Harness) -> None:
    harness.backend.plays(calls(ADD, FIND), says("Hm."))
    message, _ = await complete(harness, HELLO, tools=[CITY])
    sent = answered(message)
    sent[0]["tool_calls"][0]["function"]["arguments"] = '{"other": 1}'
    await complete(harness, [*HELLO, *sent], tools=[CITY])
    assert told(harness) == ["user Hello", "assistant [city call_city]", "tool Cork call_city"]


async def test_no_other_caller_gets_the_hosts_calls(harness: Harness) -> None:
    harness.backend.plays(calls(ADD, FIND), says("Hm."))
    message, _ = await complete(harness, HELLO, tools=[CITY])
    await complete(harness, [*HELLO, *answered(message)], "bob-key", tools=[CITY])
    assert told(harness) == ["user Hello", "assistant [city call_city]", "tool Cork call_city"]


@pytest.mark.requirement("I32-chat")
@pytest.mark.parametrize(
    "members",
    [{}, {"tools": [{"type": "mcp", "server_label": "desk"}]}, {"metadata": {"toolplug_approvals": "items"}}],
    ids=["", "declared", "items"],
)
async def test_the_model_hears_that_a_person_must_approve(harness: Harness, members: dict[str, Any]) -> None:
    harness.backend.plays(calls(ASK), says("Please approve."))
    message, whole = await complete(harness, HELLO, **members)
    assert message.content == "Please approve."
    (approval,) = whole.toolplug["approvals"]
    assert f"id {approval['id']}" in told(harness)[-1]
    assert "a person must approve" in told(harness)[-1]
    assert harness.board.log == []


@pytest.mark.requirement("I32-chat")
async def test_the_last_chunk_of_a_stream_has_the_approvals(harness: Harness) -> None:
    harness.backend.plays(calls(ASK), says("Please approve."))
    chunks = [
        chunk async for chunk in await harness.client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    ]
    said = [(chunk.model_extra or {}).get("toolplug") for chunk in chunks]
    assert [bool(each) for each in said] == [False] * (len(said) - 1) + [True]
