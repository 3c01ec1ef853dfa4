"""The cases of the official compliance tests: what they send and what they look for, with every answer judged.

They are published as a web page's script (github.com/openresponses/openresponses, src/lib/compliance-tests.ts), in no
package; these are their seven cases.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.responses.backend.script import Answer, Call, calls, says
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("C-9-judges", "I6-5-published")]

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}},
        "required": ["location"],
    },
}
CALL = calls(Call("get_weather", '{"location": "San Francisco, CA"}'))
RED_DOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4"
    "//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg=="
)


def message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


CASES: dict[str, tuple[list[dict[str, Any]], Answer]] = {
    "basic-response": ([message("user", "Say hello in exactly 3 words.")], says("Hello to you.")),
    "system-prompt": (
        [message("system", "You are a pirate. Always respond in pirate speak."), message("user", "Say hello.")],
        says("Ahoy!"),
    ),
    "image-input": (
        [
            message(
                "user",
                [
                    {"type": "input_text", "text": "What do you see in this image? Answer in one sentence."},
                    {"type": "input_image", "image_url": RED_DOT},
                ],
            )
        ],
        says("A red dot."),
    ),
    "multi-turn": (
        [
            message("user", "My name is Alice."),
            message("assistant", "Hello Alice! Nice to meet you. How can I help you today?"),
            message("user", "What is my name?"),
        ],
        says("Alice."),
    ),
}


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


@pytest.mark.parametrize("case", CASES)
async def test_a_case_of_text(harness: Harness, case: str) -> None:
    asked, answer = CASES[case]
    harness.backend.plays(answer)
    answered = (await harness.post(model=MODEL, input=asked, stream=False)).json()
    assert answered["status"] == "completed"
    assert answered["output"]


async def test_streaming_response(harness: Harness) -> None:
    harness.backend.plays(says("1, 2, 3, 4, 5"))
    events = await harness.stream([message("user", "Count from 1 to 5.")])
    assert events[-1].type == "response.completed"
    assert events[-1].response.status == "completed"


async def test_tool_calling(harness: Harness) -> None:
    harness.backend.plays(CALL)
    asked = [message("user", "What's the weather like in San Francisco?")]
    answered = (await harness.post(model=MODEL, input=asked, tools=[WEATHER], stream=False)).json()
    assert "function_call" in {item["type"] for item in answered["output"]}


async def test_tool_calling_streaming(harness: Harness) -> None:
    harness.backend.plays(CALL)
    await harness.stream([message("user", "What's the weather like in San Francisco?")], tools=[WEATHER])
    events = harness.judged.streams[-1].events
    about = [(event["type"], event.get("item", {}).get("type")) for event in events]
    assert ("response.output_item.added", "function_call") in about
    assert ("response.function_call_arguments.delta", None) in about
    assert ("response.function_call_arguments.done", None) in about
    assert ("response.output_item.done", "function_call") in about
