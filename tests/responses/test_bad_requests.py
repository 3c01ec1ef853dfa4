"""Requests that are wrong: a 400 that names the place, and nothing is asked of the backend."""

from __future__ import annotations

from typing import Any

import pytest
from tests.http.conftest import ALICE
from tests.responses.backend.script import says
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I6-bad-requests")]

CRM: dict[str, Any] = {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}
TABLE: list[tuple[dict[str, Any], str | None]] = [
    ({"input": 7}, "input"),
    ({"input": []}, "input"),
    ({}, "input"),
    ({"input": ["text"]}, "input[0]"),
    ({"input": [{}]}, "input[0].type"),
    ({"input": [{"type": "dance"}]}, "input"),
    ({"input": [{"type": ""}]}, "input[0].type"),
    ({"input": [{"id": 7}]}, "input[0].id"),
    ({"input": [{"type": None}]}, "input[0].type"),
    ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": 7}]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{}]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call", "name": "add", "arguments": "{}"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0].name"),
    ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    ({"input": "x", "tools": "add"}, "tools"),
    ({"input": "x", "tools": ["add"]}, "tools[0]"),
    ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
    ({"input": "x", "tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ({"input": "x", "tools": [{"type": "function", "name": "a", "parameters": 7}]}, "tools[0].parameters"),
    ({"input": "x", "tools": [{"name": "a"}]}, "tools[0].type"),
    ({"input": "x", "tool_choice": "sometimes"}, "tool_choice"),
    ({"input": "x", "tool_choice": {"type": "function", "name": "nothing"}}, "tool_choice"),
    ({"input": "x", "tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice.tools"),
    ({"input": "x", "allowed_tools": "add"}, "allowed_tools"),
    ({"input": "x", "allowed_tools": [7]}, "allowed_tools[0]"),
    ({"input": "x", "max_tool_calls": 0}, "max_tool_calls"),
    ({"input": "x", "max_output_tokens": "many"}, "max_output_tokens"),
    ({"input": "x", "temperature": "hot"}, "temperature"),
    ({"input": "x", "temperature": 3}, "temperature"),
    ({"input": "x", "stream": "yes"}, "stream"),
    ({"input": "x", "store": 1}, "store"),
    ({"input": "x", "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"input": "x", "metadata": {"a": 1}}, "metadata.a"),
    ({"input": "x", "text": {"format": {"type": "poem"}}}, "text.format.type"),
    ({"input": "x", "truncation": "sometimes"}, "truncation"),
    ({"input": "x", "include": ["everything"]}, "include[0]"),
    ({"input": "x", "previous_response_id": 7}, "previous_response_id"),
    ({"input": "x", "conversation": "conv_1"}, "conversation"),
    ({"input": "x", "prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"input": "x", "tools": [{"type": "namespace", "tools": []}]}, "tools[0].name"),
    ({"input": "x", "tools": [{"type": "namespace", "name": "crm"}]}, "tools[0].tools"),
    ({"input": "x", "tools": [{"type": "namespace", "name": "crm", "tools": [7]}]}, "tools[0].tools[0].type"),
    ({"input": "x", "tools": [{**CRM, "name": "c" * 61}]}, "tools[0].tools[0].name"),
    ({"input": "x", "tools": [CRM, {"type": "function", "name": "crm__find"}]}, "tools[1].name"),
    ({"input": "x", "model": 7}, "model"),
    ({"input": "x", "instructions": 7}, "instructions"),
]
TOO_MANY: list[tuple[dict[str, Any], str]] = [
    ({"input": "x", "metadata": {str(number): "x" for number in range(17)}}, "metadata"),
    ({"input": [{"role": "user", "content": ""}] * 4097}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "text", "text": ""}] * 4097}]}, "input[0].content"),
    ({"input": "x", "tools": [{"type": "mcp"}] * 1001}, "tools"),
    ({"input": "x", "tools": [{**CRM, "tools": CRM["tools"] * 1001}]}, "tools[0].tools[1000]"),
    ({"input": "x", "allowed_tools": [{"type": "mcp"}] * 1001}, "allowed_tools"),
    ({"input": "x", "tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp"}] * 1001}}, "tool_choice.tools"),
    ({"input": "x", "include": ["web_search_call.action.sources"] * 101}, "include"),
    ({"input": "x", "tools": [{str(number): 1 for number in range(1001)}]}, "tools[0]"),
]


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


@pytest.mark.parametrize(("body", "param"), TABLE, ids=[str(index) for index in range(len(TABLE))])
async def test_a_malformed_request_is_refused_by_its_place(harness: Harness, body: dict[str, Any], param: str) -> None:
    answer = await harness.post(**{"model": MODEL, **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request"), error
    assert error["param"] == param, error
    assert harness.backend.asked == []


@pytest.mark.requirement("SEC-too-many-items")
@pytest.mark.parametrize(("body", "param"), TOO_MANY, ids=[str(index) for index in range(len(TOO_MANY))])
async def test_a_list_over_its_maximum_is_refused_as_too_many(
    harness: Harness, body: dict[str, Any], param: str
) -> None:
    answer = await harness.post(**{"model": MODEL, **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (422, "too_many", param), error
    assert harness.backend.asked == []


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"{", 400), (b"[]", 400), (b"\xff\xfe", 400)],
)
async def test_a_body_that_is_no_json_object_is_refused(harness: Harness, body: bytes, status: int) -> None:
    answer = await harness.http.post(
        "/v1/responses", content=body, headers={**ALICE, "Content-Type": "application/json"}
    )
    assert answer.status_code == status
    assert harness.backend.asked == []


async def test_a_body_over_the_limit_is_refused_before_it_is_read(harness: Harness) -> None:
    answer = await harness.post(model=MODEL, input="x" * (1024 * 1024 + 1))
    assert answer.status_code == 413
    assert harness.backend.asked == []


async def test_without_credentials_nothing_is_answered(harness: Harness) -> None:
    answer = await harness.http.post("/v1/responses", json={"input": "x"}, headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401
    assert harness.backend.asked == []


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_another_method_is_refused(harness: Harness, method: str) -> None:
    assert (await harness.http.request(method, "/v1/responses")).status_code == 405


async def test_a_text_that_is_no_unicode_is_refused(harness: Harness) -> None:
    answer = await harness.http.post(
        "/v1/responses", content=b'{"model": "m", "input": "\\ud83d"}', headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400
    assert harness.backend.asked == []


async def test_a_wrong_stream_is_refused_before_it_begins(harness: Harness) -> None:
    answer = await harness.post(model=MODEL, input=7, stream=True)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")


async def test_the_next_request_is_answered(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    await harness.post(model=MODEL, input=7)
    assert (await harness.create()).output_text == "Hello"
