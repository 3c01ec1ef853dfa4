"""What a request has that this host does not know is ignored, and said in the answer, a header and the log."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from tests.http.conftest import ALICE
from tests.responses.backend.script import says
from tests.responses.harness import MODEL, Harness

from toolplug.http.bodies.foreign_requests import DAY_S, MOST_LOGGED, MOST_NAMES, IgnoredNames
from toolplug.parts.responses.request_tools import read_tools

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I32-tolerance")]

HEADER = "Toolplug-Warnings"
USER = {"role": "user", "content": "Hello"}
NAMESPACE: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "",
    "tools": [{"type": "function", "name": "find"}, {"type": "file_search"}],
}
IGNORED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"client_metadata": {"a": "b"}}, "unknown_field", "client_metadata", "client_metadata"),
    ({"prompt_cache_options": None}, "unknown_field", "prompt_cache_options", "prompt_cache_options"),
    ({"reasoning": {"effort": "low", "context": "auto"}}, "unknown_field", "reasoning.context", "reasoning.context"),
    ({"text": {"format": {"type": "text", "tone": 1}}}, "unknown_field", "text.format.tone", "text.format.tone"),
    ({"stream_options": {"wings": 2}}, "unknown_field", "stream_options.wings", "stream_options.wings"),
    ({"input": [{"type": "compaction", "id": "c"}, USER]}, "unknown_item", "input[0]", "input[0].compaction"),
    ({"input": [{"type": "tool_search_call"}, USER]}, "unknown_item", "input[0]", "input[0].tool_search_call"),
    (
        {"input": [{"role": "user", "content": [{"type": "smell"}, {"type": "input_text", "text": "Hello"}]}]},
        "unknown_part",
        "input[0].content[0]",
        "input[0].content[0].smell",
    ),
]


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


@pytest.mark.parametrize(("body", "code", "param", "name"), IGNORED, ids=[name for *_, name in IGNORED])
async def test_what_is_not_known_is_ignored_and_named(
    harness: Harness, body: dict[str, Any], code: str, param: str, name: str
) -> None:
    harness.backend.plays(says("Hi"))
    answer = await harness.post(**{"model": MODEL, "input": "Hello", **body})
    assert answer.status_code == 200, answer.text
    (warning,) = answer.json()["toolplug"]["warnings"]
    assert (warning["code"], warning["param"]) == (code, param)
    assert param in warning["message"]
    assert answer.headers[HEADER] == name
    (asked,) = harness.backend.asked
    assert asked.body["messages"][-1] == {"role": "user", "content": "Hello"}
    assert answer.json()["output"][0]["content"][0]["text"] == "Hi"


async def test_a_known_request_has_no_warnings(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    answer = await harness.post(model=MODEL, input="Hello", reasoning={"effort": "low"})
    assert HEADER not in answer.headers
    assert "toolplug" not in answer.json()


async def test_a_stream_and_a_background_response_say_it_too(harness: Harness) -> None:
    harness.backend.plays(says("Hi"), says("Hi"))
    streamed = await harness.post(model=MODEL, input="Hello", wings=2, stream=True)
    assert streamed.headers[HEADER] == "wings"
    created = json.loads(streamed.text.split("data: ", 1)[1].split("\n", 1)[0])
    assert created["response"]["toolplug"]["warnings"][0]["param"] == "wings"
    begun = await harness.post(model=MODEL, input="Hello", wings=2, background=True)
    assert begun.headers[HEADER] == "wings"


async def test_a_built_in_tool_that_nobody_declares_is_named_in_the_header(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    answer = await harness.post(model=MODEL, input="Hello", tools=[{"type": "image_generation"}])
    assert answer.headers[HEADER] == "tools[0].image_generation"


async def test_a_tool_in_a_namespace_that_is_no_function_is_dropped(harness: Harness) -> None:
    read = read_tools([NAMESPACE])
    assert [function["name"] for function in read.functions] == ["crm__find"]
    assert [(warning.code, warning.index, warning.type) for warning in read.warnings] == [
        ("unmatched_stub", 0, "file_search")
    ]
    strict = await harness.post(model=MODEL, input="x", tools=[NAMESPACE], metadata={"toolplug_strict": "true"})
    assert (strict.status_code, strict.json()["error"]["param"]) == (400, "tools[0]")


async def test_a_message_of_which_nothing_is_left_tells_the_model_so(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    content = [{"type": "input_video", "url": "https://example.com/v"}]
    answer = await harness.post(model=MODEL, input=[{"role": "user", "content": content}])
    assert answer.status_code == 200
    (asked,) = harness.backend.asked
    assert asked.body["messages"] == [{"role": "user", "content": "[left out: input_video]"}]


async def test_ten_are_named_and_the_rest_is_counted(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    unknown = {f"wing{number:02}": number for number in range(14)}
    answer = await harness.post(model=MODEL, input="Hello", **unknown)
    names = answer.headers[HEADER].split(", ")
    assert names == [*[f"wing{number:02}" for number in range(MOST_NAMES)], "4-more"]
    warnings = answer.json()["toolplug"]["warnings"]
    assert [warning.get("param") for warning in warnings] == [*names[:-1], None]
    assert warnings[-1] == {"code": "more", "count": 4, "message": "and 4 more"}


async def test_a_name_that_no_header_can_have_is_only_counted(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    answer = await harness.post(model=MODEL, input="Hello", **{"a\r\nb: c": 1, "wings": 2, "ü" * 300: 3})
    assert answer.headers[HEADER] == "wings, 2-more"


@pytest.mark.parametrize("how", ["header", "metadata"])
async def test_a_strict_request_is_refused_for_it(harness: Harness, how: str) -> None:
    headers = {"X-Toolplug-Strict": "true"} if how == "header" else {}
    given = {"metadata": {"toolplug_strict": "true"}} if how == "metadata" else {}
    body = {"model": MODEL, "input": "Hello", "wings": 2, **given}
    answer = await harness.http.post("/v1/responses", json=body, headers={**ALICE, **headers})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "wings")
    assert harness.backend.asked == []


async def test_the_log_says_a_name_once_a_day(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("toolplug.responses")
    now = [1_000.0]
    monkeypatch.setattr("toolplug.http.bodies.foreign_requests.monotonic", lambda: now[0])
    names = IgnoredNames()
    with caplog.at_level(logging.INFO, "toolplug.responses"):
        for name in ("input[3].compaction", "input[7].compaction", "wings", "wings"):
            names.say(log, "/v1/responses", name)
        assert [record.getMessage().split(" send ")[1].split(",")[0] for record in caplog.records] == [
            "input[].compaction",
            "wings",
        ]
        now[0] += DAY_S
        names.say(log, "/v1/responses", "wings")
        assert len(caplog.records) == 3
        for number in range(2 * MOST_LOGGED):
            names.say(log, "/v1/responses", f"name{number}")
        assert len(caplog.records) == 3 + MOST_LOGGED - 2
