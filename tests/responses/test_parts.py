"""Images, audio, links and resources of a result: for callers as parts, for the model as an image or a line each."""

from __future__ import annotations

from typing import Any

import pytest
from tests.responses.backend.script import Call, calls, says
from tests.responses.harness import MODEL, Harness, call_id_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.leaves("task", "thread"),
    pytest.mark.requirement("C-3-parts"),
]

DRAW = Call("draw", '{"what": "an otter"}', "call_draw")
LINES = """\
[image image/png]
[left out: audio audio/wav]
[left out: resource_link more <https://otters.example/more>]
[left out: resource <file:///a.txt> text/plain]"""
SEEN = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,UE5H"}}]}


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


async def made(harness: Harness, **members: Any) -> dict[str, Any]:
    answer = await harness.post(**{"model": MODEL, "input": "Go", **members})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_call_over_http_answers_the_parts(harness: Harness) -> None:
    answer = await harness.http.post("/v1/tool-calls", json={"name": "draw", "arguments": {"what": "an otter"}})
    whole = answer.json()
    assert (whole["output"], [part["type"] for part in whole["parts"]]) == (
        "Here is an otter.",
        ["image", "audio", "resource_link", "resource"],
    )
    assert whole["parts"][0] == {"type": "image", "data": "UE5H", "mimeType": "image/png"}
    bare = await harness.http.post("/v1/tool-calls", json={"name": "add", "arguments": {"a": 1, "b": 2}})
    assert "parts" not in bare.json()


async def test_the_model_sees_the_image_and_a_line_for_every_part(harness: Harness) -> None:
    harness.backend.plays(calls(DRAW, Call("add", '{"a": 1, "b": 2}', "call_add")), says("Nice."))
    first = await made(harness)
    _, called, drawn, added, seen = harness.backend.asked[1].messages
    assert [call["id"] for call in called["tool_calls"]] == ["call_draw", "call_add"]
    assert drawn["content"] == [{"type": "text", "text": f"Here is an otter.\n{LINES}"}]
    assert (added["content"], seen) == ("3", SEEN)
    assert first["output"][0]["output"] == f"Here is an otter.\n{LINES}"
    assert "parts" not in first["output"][0]


async def test_a_result_of_parts_alone_is_its_lines(harness: Harness) -> None:
    harness.backend.plays(calls(Call("draw", '{"what": ""}')), says("Nice."))
    assert (await made(harness))["output"][0]["output"] == LINES


async def test_the_model_sees_the_image_again_when_the_response_is_continued(harness: Harness) -> None:
    harness.backend.plays(calls(DRAW), says("Nice."), says("Bye."), says("Bye."))
    first = await made(harness, include=["mcp_call.parts"])
    assert first["output"][0]["parts"][0]["data"] == "UE5H"
    await made(harness, input="Bye", previous_response_id=first["id"])
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    question, goodbye = {"role": "user", "content": "Go"}, {"role": "user", "content": "Bye"}
    await made(harness, input=[question, *references, goodbye])
    during, continued, referred = (asked.messages for asked in harness.backend.asked[1:])
    assert continued[: len(during)] == during
    assert SEEN in during
    assert referred == continued


async def test_the_image_of_a_clients_answer_is_shown_to_the_model(harness: Harness) -> None:
    look: dict[str, Any] = {"type": "function", "name": "look"}
    harness.backend.plays(calls(Call("look", "{}", "call_look")), says("Nice."))
    first = await made(harness, tools=[look])
    image = {"type": "input_image", "image_url": "data:image/png;base64,UE5H"}
    output = [{"type": "input_text", "text": "Here."}, image]
    answer = {"type": "function_call_output", "call_id": call_id_of(first, "look"), "output": output}
    await made(harness, input=[answer], previous_response_id=first["id"], tools=[look])
    *_, told, seen = harness.backend.asked[1].messages
    assert (told["role"], told["content"], seen) == ("tool", [{"type": "text", "text": "Here."}], SEEN)
