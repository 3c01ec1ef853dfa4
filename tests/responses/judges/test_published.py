"""The judges find what they are for: each broken object and each broken stream is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.responses.judges.published import Unpublished, check_error, check_event, check_item, check_response
from tests.responses.judges.stream_laws import StreamLaws

pytestmark = pytest.mark.requirement("I6-5-published")

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "otters"},
}
OWN = {"type": "acme:tide_call", "id": "tide_1", "status": "completed"}
RESPONSE: Mapping[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "completed_at": 2,
    "status": "completed",
    "incomplete_details": None,
    "model": "scripted",
    "previous_response_id": None,
    "instructions": None,
    "output": [SEARCH, OWN, MESSAGE],
    "error": None,
    "tools": [{"type": "web_search"}, {"type": "tide"}],
    "tool_choice": {"type": "web_search"},
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": None,
    "usage": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}


def test_what_is_published_is_taken() -> None:
    check_response(RESPONSE)


@pytest.mark.parametrize("name", sorted(RESPONSE.keys() - {"metadata"}))
def test_a_response_that_lacks_a_member_is_refused(name: str) -> None:
    with pytest.raises(Unpublished):
        check_response({key: value for key, value in RESPONSE.items() if key != name})


@pytest.mark.parametrize(
    "change",
    [
        {"created_at": "1"},
        {"temperature": "hot"},
        {"tool_choice": "sometimes"},
        {"text": {"format": {"type": "poem"}}},
        {"tools": [{"name": "city"}]},
        {"tools": [{"type": "function", "name": "city"}]},
        {"output": [{**MESSAGE, "status": "done"}]},
        {"output": [{**SEARCH, "action": None}]},
        {"output": [{"type": "toolplug", "id": "x", "status": "completed"}]},
        {"output": [{**OWN, "status": "over"}]},
    ],
)
def test_a_wrong_member_is_refused(change: Mapping[str, Any]) -> None:
    with pytest.raises(Unpublished):
        check_response({**RESPONSE, **change})


def test_a_function_call_needs_its_id() -> None:
    with pytest.raises(Unpublished):
        check_item({"type": "function_call", "id": "fc_1", "name": "add", "arguments": "{}", "status": "completed"})


def test_an_error_has_five_members() -> None:
    check_error({"error": {"type": "t", "code": "c", "message": "m", "param": None, "request_id": "r"}})
    with pytest.raises(Unpublished):
        check_error({"error": {"type": "t", "code": "c", "message": "m"}})


def test_an_event_nobody_published_is_refused() -> None:
    check_event({"type": "acme:tide_call.looking", "sequence_number": 0, "output_index": 0, "item_id": "tide_1"})
    with pytest.raises(Unpublished):
        check_event({"type": "response.tide.looking", "sequence_number": 0})


def stream(*changed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A good stream of one hosted call, numbered; `changed` are merged into the events from the first on."""
    opening = {**RESPONSE, "output": [], "status": "in_progress", "completed_at": None}
    at = {"output_index": 0, "item_id": "ws_1"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": opening},
        {"type": "response.in_progress", "response": opening},
        {"type": "response.output_item.added", "output_index": 0, "item": {**SEARCH, "status": "in_progress"}},
        {"type": "response.web_search_call.in_progress", **at},
        {"type": "response.web_search_call.searching", **at},
        {"type": "response.web_search_call.completed", **at},
        {"type": "response.output_item.done", "output_index": 0, "item": SEARCH},
        {"type": "response.completed", "response": {**RESPONSE, "output": [SEARCH]}},
    ]
    changes = [*changed, *({} for _ in range(len(events) - len(changed)))]
    return [
        {**event, "sequence_number": number, **change}
        for number, (event, change) in enumerate(zip(events, changes, strict=True))
    ]


def judge(events: list[dict[str, Any]]) -> None:
    laws = StreamLaws()
    for event in events:
        laws.take(event)
    laws.end()


def test_a_good_stream_is_taken() -> None:
    judge(stream())


@pytest.mark.requirement("C-9-sequence")
@pytest.mark.parametrize("without", range(8))
def test_a_stream_with_a_gap_is_refused(without: int) -> None:
    with pytest.raises(Unpublished):
        judge([event for index, event in enumerate(stream()) if index != without])


@pytest.mark.parametrize("without", [0, 2, 3, 5, 6, 7])
def test_a_stream_that_lacks_an_event_is_refused_however_it_is_numbered(without: int) -> None:
    events = [event for index, event in enumerate(stream()) if index != without]
    with pytest.raises(Unpublished):
        judge([{**event, "sequence_number": number} for number, event in enumerate(events)])


@pytest.mark.parametrize(
    "changed",
    [
        [{"sequence_number": 1}],
        [{}, {}, {"output_index": 1}],
        [{}, {}, {}, {}, {"type": "response.web_search_call.completed"}],
        [{}, {}, {}, {}, {}, {}, {"item": {**SEARCH, "id": "ws_2"}}],
        [{}, {}, {}, {}, {}, {}, {"item": {**SEARCH, "status": "in_progress"}}],
        [{}, {}, {}, {}, {}, {}, {}, {"response": RESPONSE}],
        [{}, {}, {}, {}, {}, {}, {}, {"type": "response.failed"}],
    ],
)
def test_a_stream_that_breaks_a_law_is_refused(changed: list[Mapping[str, Any]]) -> None:
    with pytest.raises(Unpublished):
        judge(stream(*changed))


def test_fragments_that_do_not_add_up_are_refused() -> None:
    item = {**MESSAGE, "content": [], "status": "in_progress"}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    text = "response.output_text"
    laws = StreamLaws()
    for number, event in enumerate(
        [
            *stream()[:2],
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.content_part.added", **at, "part": part},
            {"type": f"{text}.delta", **at, "delta": "H", "logprobs": []},
        ]
    ):
        laws.take({**event, "sequence_number": number})
    with pytest.raises(Unpublished, match="the fragments are 'H'"):
        laws.take({"type": f"{text}.done", **at, "text": "Hi", "logprobs": [], "sequence_number": 5})
