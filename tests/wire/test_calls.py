"""`POST /v1/tool-calls`: how calls end, at whichever process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from tests.wire.callers import Caller, new_name

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]

NO_PROVIDER = 'no builtin provider handles tool "{}"'
OUTCOMES = {
    "text": ({"name": "echo", "arguments": {"text": "é\n"}}, "success", "é\n"),
    "a number": ({"name": "plus", "arguments": {"a": 1, "b": 2}}, "success", "3"),
    "arguments as text": ({"name": "plus", "arguments": '{"a": 1, "b": 2}'}, "success", "3"),
    "no arguments": ({"name": "hello"}, "success", "Hello, world!"),
    "null": ({"name": "gives", "arguments": {"value": None}}, "success", "null"),
    "a list": ({"name": "gives", "arguments": {"value": [1, "x"]}}, "success", '[1,"x"]'),
    "a large integer": ({"name": "gives", "arguments": {"value": 2**70}}, "success", str(2**70)),
    "an empty text": ({"name": "gives", "arguments": {"value": ""}}, "success", ""),
    "options": ({"name": "look_up", "arguments": {"word": "w"}, "options": {"depth": 3}}, "success", "w at depth 3"),
    "an agent's": ({"name": "greet.hello", "agent": "greeter"}, "success", "Hello, world!"),
    "a wire name": ({"name": "greet__hello", "agent": "greeter"}, "success", "Hello, world!"),
    "a tool's error": ({"name": "fails", "arguments": {"why": "rain"}}, "tool_error", "rain"),
    "a panic": (
        {"name": "panics", "arguments": {"secret": "s3cret"}},
        "panic",
        'internal error: builtin tool "panics" panicked',
    ),
    "a wrong type": (
        {"name": "plus", "arguments": {"a": "x", "b": 2}},
        "invalid_arguments",
        'invalid arguments for tool "plus"*/a*',
    ),
    "a missing argument": (
        {"name": "plus", "arguments": {"a": 1}},
        "invalid_arguments",
        'invalid arguments for tool "plus"*b*',
    ),
    "no JSON": ({"name": "plus", "arguments": "{a: 1}"}, "invalid_arguments", 'invalid arguments for tool "plus"*'),
    "no object": ({"name": "plus", "arguments": "[1]"}, "invalid_arguments", 'invalid arguments for tool "plus"*'),
    "a key twice": (
        {"name": "plus", "arguments": '{"a": 1, "a": 2, "b": 3}'},
        "invalid_arguments",
        'invalid arguments for tool "plus"*',
    ),
    "an unknown tool": ({"name": "nowhere"}, "unknown_tool", NO_PROVIDER.format("nowhere")),
    "an unknown prefix": ({"name": "zz.hello"}, "unknown_tool", "Toolset not found for zz.hello"),
    "no prefix": ({"name": ".hello"}, "unknown_tool", "Toolset not found for .hello"),
    "a disabled tool": ({"name": "unseen"}, "unknown_tool", NO_PROVIDER.format("unseen")),
    "outside the allowlist": ({"name": "echo", "agent": "greeter"}, "unknown_tool", NO_PROVIDER.format("echo")),
    "an agent of nobody": ({"name": "greet.hello", "agent": "nobody"}, "unknown_tool", "Toolset not found for *"),
    "an agent without toolsets": ({"name": "hello", "agent": "default"}, "unknown_tool", NO_PROVIDER.format("hello")),
    "a tool that is not allowed": ({"name": "never"}, "denied", 'tool "never" is not allowed: *'),
    "a deadline": ({"name": "waits", "arguments": {"seconds": 9}}, "timeout", 'tool "waits" timed out after *'),
    "a deadline of the request": (
        {"name": "naps", "arguments": {"seconds": 9, "name": "unused"}, "timeoutMs": 100},
        "timeout",
        'tool "naps" timed out after *',
    ),
}
REFUSED = {
    "no JSON": (b"{", 400, "invalid_request"),
    "no object": (b"[]", 400, "invalid_request"),
    "a key twice": (b'{"name": "hello", "name": "echo"}', 400, "invalid_json"),
    "no name": (b"{}", 400, "invalid_request"),
    "an empty name": (b'{"name": ""}', 400, "invalid_request"),
    "a name of a number": (b'{"name": 1}', 400, "invalid_request"),
    "an unknown field": (b'{"name": "hello", "tool": "hello"}', 400, "invalid_request"),
    "arguments that are a number": (b'{"name": "hello", "arguments": 1}', 400, "invalid_request"),
    "no time": (b'{"name": "hello", "timeoutMs": 0}', 400, "invalid_request"),
    "too much time": (b'{"name": "hello", "timeoutMs": 300001}', 400, "invalid_request"),
    "a malformed session": (b'{"name": "hello", "session": "abc"}', 400, "invalid_session_code"),
    "an unknown session": (b'{"name": "hello", "session": "ABCDEFGH"}', 404, "session_not_found"),
    "too much": (b'{"name": "hello", "id": "' + b"x" * (1 << 20) + b'"}', 413, "body_too_large"),
}


async def call(client: httpx2.AsyncClient, name: str, /, headers: dict[str, str] | None = None, **body: Any) -> Any:
    """The answer to a call of the tool with these arguments."""
    answer = await client.post("/v1/tool-calls", json={"name": name, "arguments": body}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("case", OUTCOMES.values(), ids=OUTCOMES.keys())
async def test_a_call_ends(client: httpx2.AsyncClient, case: tuple[dict[str, Any], str, str]) -> None:
    body, status, output = case
    answer = await client.post("/v1/tool-calls", json={"id": "c 1", **body})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["call_id"], found["status"], found["is_error"]) == ("c 1", status, status != "success")
    before, _, after = output.partition("*")
    assert found["output"].startswith(before)
    assert all(part in found["output"] for part in after.split("*"))
    assert ("*" in output) or found["output"] == output
    assert "s3cret" not in answer.text


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
async def test_a_request_is_refused(client: httpx2.AsyncClient, case: tuple[bytes, int, str]) -> None:
    content, status, code = case
    answer = await client.post("/v1/tool-calls", content=content, headers={"Content-Type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert {*error} == {"type", "code", "message", "param", "request_id"}
    assert (error["type"], bool(error["message"])) == ("not_found" if status == 404 else "invalid_request", True)


@pytest.mark.parametrize("coding", ["gzip", "br"])
async def test_a_compressed_body_is_refused(client: httpx2.AsyncClient, coding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    answer = await client.post("/v1/tool-calls", content=b"x", headers=headers)
    assert answer.status_code == 415


async def test_ids_that_are_made_up_differ(client: httpx2.AsyncClient) -> None:
    ids = [(await call(client, "hello"))["call_id"] for _ in range(8)]
    assert len({*ids}) == 8


async def test_a_tool_is_told_who_calls(client: httpx2.AsyncClient, tenant: str) -> None:
    for _ in range(4):
        told = (await call(client, "whoami"))["structured"]
        assert told == {"subject": "alice", "tenant": tenant, "agent": None, "session": None}


async def test_a_result_has_parts(client: httpx2.AsyncClient) -> None:
    drawn = await call(client, "draws")
    assert (drawn["output"], drawn["parts"]) == ("here", [{"type": "image", "data": "UE5H", "mimeType": "image/png"}])


async def test_an_error_has_its_data(client: httpx2.AsyncClient) -> None:
    assert (await call(client, "fails", why="rain"))["metadata"]["reason"] == "rain"


async def test_progress_is_told_before_the_result(client: httpx2.AsyncClient) -> None:
    body = {"id": "c1", "name": "reports", "arguments": {"upto": 3}}
    answer = await client.post("/v1/tool-calls", json=body, headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in answer.text.strip().split("\n\n")]
    events = [dict(line.split(": ", 1) for line in block) for block in blocks]
    told = [(event["event"], json.loads(event["data"])) for event in events]
    *reports, (last, result) = told
    assert [(name, data["call_id"], data["progress"], data["total"]) for name, data in reports] == [
        ("progress", "c1", number, 3) for number in (1, 2, 3)
    ]
    assert (last, result["status"], result["output"]) == ("result", "success", "3")


async def test_a_long_result_is_read_in_pieces(client: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    kept = await call(client, "long", characters=1_500_000)
    assert kept["status"] == "success"
    assert len(kept["output"]) < 1_100_000
    handle = kept["metadata"]["truncated"]["handle"]
    for offset in (0, 700_000, 1_499_990):
        piece = await call(client, "read_result", handle=handle, offset=offset, limit=10)
        assert (piece["status"], "x" * 10 in piece["output"]) == ("success", True)
    assert (await call(stranger, "read_result", handle=handle))["is_error"]


async def test_a_key_makes_a_call_run_once(client: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    name, headers = new_name("once"), {"Idempotency-Key": "k1"}
    body = {"name": "times", "arguments": {"name": name}}
    answers = [await client.post("/v1/tool-calls", json=body, headers=headers) for _ in range(6)]
    assert [answer.json()["output"] for answer in answers] == ["1"] * 6
    assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None] + ["true"] * 5
    assert len({answer.json()["call_id"] for answer in answers}) == 1
    for _ in range(3):
        other = await client.post("/v1/tool-calls", json={"name": "hello"}, headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert (await call(stranger, "times", headers, name=name))["output"] == "2"


async def test_calls_with_one_key_at_the_same_time_run_once(client: httpx2.AsyncClient) -> None:
    name, headers = new_name("together"), {"Idempotency-Key": "k1"}
    body = {"name": "naps", "arguments": {"seconds": 0.5, "name": name}}
    answers = await asyncio.gather(*(client.post("/v1/tool-calls", json=body, headers=headers) for _ in range(6)))
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert {answer.json()["output"] for answer in answers if answer.status_code == 200} == {"run 1"}
    assert (await call(client, "naps", headers, seconds=0.5, name=name))["output"] == "run 1"
    assert (await call(client, "times", name=name))["output"] == "2"


async def test_keys_of_two_callers_are_two_keys(client: httpx2.AsyncClient, caller: Caller, tenant: str) -> None:
    name, headers = new_name("whose"), {"Idempotency-Key": "k1"}
    bob = await caller(tenant, subject="bob")
    assert (await call(client, "times", headers, name=name))["output"] == "1"
    assert (await call(bob, "times", headers, name=name))["output"] == "2"
