"""`POST /v1/tool-calls`: 200 however the tool ends, 4xx only for what is no request."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient
from hypothesis import given
from hypothesis import strategies as st
from tests.http.conftest import ALICE, ROOT, as_holder, client_of, settings

from toolplug import Host, open_host
from toolplug.http import create_app
from toolplug.http.bodies.request_body import read_model
from toolplug.http.errors import HttpProblem
from toolplug.http.tools import CallBody

pytestmark = pytest.mark.anyio


async def call(client: AsyncClient, name: str, **more: Any) -> dict[str, Any]:
    """The answer's body; it is 200 and JSON."""
    answer = await client.post("/v1/tool-calls", headers=ALICE, json={"id": "c1", "name": name, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ended(status: str, output: str, **more: object) -> dict[str, object]:
    return {
        "call_id": "c1",
        "output": output,
        "is_error": status != "success",
        "status": status,
        "metadata": {},
        **more,
    }


@pytest.mark.requirement("C-5-calls-200", "C-5-calls-fields", "C-5-calls-arguments")
async def test_each_way_a_call_ends_is_a_200_with_its_status(client: AsyncClient) -> None:
    assert await call(client, "echo", arguments={"text": "otters"}) == ended("success", "otters")
    assert await call(client, "echo", arguments='{"text": "otters"}') == ended("success", "otters")
    failed = ended("tool_error", "not today", metadata={"reason": "weather"}, retry_after_s=2.5)
    assert await call(client, "fails") == failed
    panicked = ended("panic", 'internal error: builtin tool "panics" panicked')
    assert await call(client, "panics", arguments={"secret": "hush"}) == panicked
    assert await call(client, "exits") == ended("panic", 'internal error: builtin tool "exits" panicked')
    for arguments in ("[1]", "{", '{"text": 1}', {"text": 1}, {}, ""):
        refused = await call(client, "echo", arguments=arguments)
        assert (refused["status"], refused["is_error"]) == ("invalid_arguments", True)
    assert await call(client, "nope") == ended("unknown_tool", 'no builtin provider handles tool "nope"')
    assert (await call(client, "unavailable"))["status"] == "unavailable"
    timed_out = await call(client, "waits", timeoutMs=1)
    assert (timed_out["status"], timed_out["is_error"]) == ("timeout", True)


@pytest.mark.requirement("C-5-calls-200")
async def test_denied_and_limited_calls_are_200s_too(sample_package: None) -> None:
    rules = {"fails": "deny", "echo": {"limits": {"rate": "1/hour"}}}
    providers = {"sample": {"enabled": True, "tools": rules}}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        denied = 'tool "fails" is not allowed: policy: its policy is deny'
        assert await call(client, "fails") == ended("denied", denied)
        await call(client, "echo", arguments={"text": "1"})
        limited = await call(client, "echo", arguments={"text": "2"})
        assert limited["status"] == "limited"
        assert 0 < limited["retry_after_s"] <= 3600


@pytest.mark.requirement("C-5-calls-fields")
async def test_the_value_itself_is_in_structured_however_large_its_numbers(client: AsyncClient) -> None:
    whole = await call(client, "big_numbers")
    assert whole["structured"] == {"n": 2**70}
    assert "structured" not in await call(client, "echo", arguments={"text": "x"})


async def test_a_call_without_id_gets_one_of_its_own(client: AsyncClient) -> None:
    ids = set[str]()
    for _ in range(2):
        answer = await client.post("/v1/tool-calls", headers=ALICE, json={"name": "whoami"})
        ids.add(answer.json()["call_id"])
    assert len(ids) == 2


@pytest.mark.requirement("C-5-calls-timeout")
async def test_a_request_only_shortens_the_tools_own_time(sample_package: None) -> None:
    providers = {"sample": {"enabled": True, "limits": {"timeout": "10ms"}}}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        assert (await call(client, "waits", timeoutMs=300_000))["output"] == 'tool "waits" timed out after 0.01 s'
        shorter = (await call(client, "waits", timeoutMs=1))["output"]
        assert shorter == 'tool "waits" timed out after 0.001 s'


@pytest.mark.requirement("C-5-calls-4xx")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b'"text"', None),
        (b"\xff", None),
        (b'{"name": "\\ud800"}', None),
        (b"{}", "name"),
        (b'{"name": ""}', "name"),
        (b'{"name": 7}', "name"),
        (b'{"name": null}', "name"),
        (b'{"name": "%s"}' % (b"x" * 257), "name"),
        (b'{"name": "echo", "id": 7}', "id"),
        (b'{"name": "echo", "id": "%s"}' % (b"x" * 257), "id"),
        (b'{"name": "echo", "arguments": [1]}', "arguments"),
        (b'{"name": "echo", "arguments": null}', "arguments"),
        (b'{"name": "echo", "timeoutMs": 0}', "timeoutMs"),
        (b'{"name": "echo", "timeoutMs": 300001}', "timeoutMs"),
        (b'{"name": "echo", "timeoutMs": 1.5}', "timeoutMs"),
        (b'{"name": "echo", "timeoutMs": true}', "timeoutMs"),
        (b'{"name": "echo", "options": []}', "options"),
        (b'{"name": "echo", "agent": 1}', "agent"),
        (b'{"name": "echo", "session": 1}', "session"),
        (b'{"name": "echo", "approval": 1}', "approval"),
        (b'{"name": "echo", "timeoutms": 5}', "timeoutms"),
        (b"[" * 100_000, None),
    ],
)
async def test_what_is_no_request_is_400_and_names_the_field(
    client: AsyncClient, body: bytes, param: str | None
) -> None:
    answer = await client.post("/v1/tool-calls", headers={**ALICE, "Content-Type": "application/json"}, content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", param)


async def test_an_unknown_field_is_told_the_nearest_known_one() -> None:
    with pytest.raises(HttpProblem) as caught:
        read_model(b'{"name": "echo", "timeout_ms": 5}', CallBody)
    assert caught.value.message == "the body has no field 'timeout_ms' (nearest: 'timeoutMs')"


@given(st.binary(max_size=300) | st.from_regex(rb'\{"name": .{0,200}\}'))
async def test_no_body_is_anything_but_a_call_or_a_400(body: bytes) -> None:
    status = 200
    try:
        read_model(body, CallBody)
    except HttpProblem as problem:
        status = problem.status
    assert status in {200, 400}


@pytest.mark.requirement("C-5-calls-4xx")
async def test_a_body_of_another_type_is_415(client: AsyncClient) -> None:
    body = b'{"name": "whoami"}'
    for good in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
        answer = await client.post("/v1/tool-calls", headers={**ALICE, "Content-Type": good}, content=body)
        assert answer.status_code == 200
    for bad in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await client.post("/v1/tool-calls", headers={**ALICE, "Content-Type": bad}, content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


@pytest.mark.requirement("C-4-options-http", "C-4-options")
async def test_options_are_those_of_the_stub_that_stands_for_the_tool(client: AsyncClient) -> None:
    assert (await call(client, "whoami", options={"depth": 3}))["structured"]["options"] == {"depth": 3}
    assert (await call(client, "whoami", options={}))["structured"]["options"] == {}
    for name, options in (("whoami", {"depth": 0}), ("whoami", {"width": 1}), ("echo", {"depth": 1})):
        body = {"name": name, "options": options, "arguments": {"text": "x"} if name == "echo" else {}}
        answer = await client.post("/v1/tool-calls", headers=ALICE, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", "options")
    assert (await call(client, "nope", options={"depth": 1}))["status"] == "unknown_tool"


@pytest.mark.parametrize(
    ("given_id", "kept"), [("Abc.1_2-3", True), ("x" * 64, True), ("x" * 65, False), ("a b", False)]
)
async def test_a_request_id_that_is_one_is_kept_and_reaches_the_tool(
    client: AsyncClient, given_id: str, kept: bool
) -> None:
    headers = {**ALICE, "X-Request-Id": given_id}
    answer = await client.post("/v1/tool-calls", headers=headers, json={"name": "whoami"})
    shown = answer.headers["x-request-id"]
    assert (shown == given_id) is kept
    assert answer.json()["structured"]["trace"] == shown


KEYED = {**ALICE, "Idempotency-Key": "order-66"}
ECHO = {"name": "echo", "arguments": {"text": "once"}}


@pytest.mark.requirement("C-5-idempotent-replay", "C-5-idempotent-reused", "C-5-idempotent-principal")
async def test_a_key_gives_the_first_result_again_and_takes_no_other_call(client: AsyncClient, host: Host) -> None:
    first = await client.post("/v1/tool-calls", headers=KEYED, json={"id": "c1", **ECHO})
    again = await client.post("/v1/tool-calls", headers=KEYED, json={"id": "c2", **ECHO})
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == {**first.json(), "call_id": "c2"}
    other = await client.post("/v1/tool-calls", headers=KEYED, json={"name": "echo", "arguments": {"text": "two"}})
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert other.json()["error"]["param"] == "Idempotency-Key"
    bobs = {**as_holder("bob-key"), "Idempotency-Key": "order-66"}
    assert "idempotent-replayed" not in (await client.post("/v1/tool-calls", headers=bobs, json=ECHO)).headers


@pytest.mark.requirement("C-5-idempotent-replay")
async def test_a_repetition_that_names_no_id_gets_the_first_answer_to_the_letter(client: AsyncClient) -> None:
    first = await client.post("/v1/tool-calls", headers=KEYED, json=ECHO)
    again = await client.post("/v1/tool-calls", headers=KEYED, json=ECHO)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.content == first.content
    other = await client.post("/v1/tool-calls", headers={**KEYED, "Idempotency-Key": "order-67"}, json=ECHO)
    assert other.json()["call_id"] != first.json()["call_id"]


@pytest.mark.requirement("C-5-idempotent-reused")
async def test_a_tool_cannot_pretend_that_a_key_was_used(client: AsyncClient) -> None:
    answer = await client.post("/v1/tool-calls", headers=KEYED, json={"name": "unavailable"})
    assert (answer.status_code, answer.json()["status"]) == (200, "unavailable")


@pytest.mark.requirement("C-5-calls-4xx")
@pytest.mark.parametrize("key", ["", "a b", "ü", "x" * 256])
async def test_a_key_that_is_none_is_refused(client: AsyncClient, key: str) -> None:
    headers = {**ALICE, "Idempotency-Key": key.encode("latin-1")}
    answer = await client.post("/v1/tool-calls", headers=headers, json=ECHO)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Idempotency-Key")


@pytest.mark.requirement("C-5-error-types", "H-store-503")
async def test_a_call_whose_key_the_store_cannot_remember_is_503(client: AsyncClient, host: Host) -> None:
    await host.store.__aexit__(None, None, None)
    answer = await client.post("/v1/tool-calls", headers=KEYED, json=ECHO)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert (await client.post("/v1/tool-calls", headers=ALICE, json=ECHO)).status_code == 200
    await host.store.__aenter__()


@pytest.mark.requirement("C-3-unknown-disabled")
async def test_a_tool_that_is_switched_off_is_unknown_to_the_next_call(client: AsyncClient) -> None:
    await client.post("/v1/providers/sample/disable", headers=ROOT)
    assert (await call(client, "whoami"))["status"] == "unknown_tool"
