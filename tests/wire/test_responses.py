"""`/v1/responses`: made at one process, continued, read and ended at another. The model does as it is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from tests.wire.answers import ROUNDS, error_of
from tests.wire.application import application
from tests.wire.callers import new_name

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]

CITY = {"type": "function", "name": "city", "parameters": {"type": "object", "properties": {}}}
PLUS = 'call plus {"a": 1, "b": 2}'
REFUSED: dict[str, dict[str, Any]] = {
    "no input": {"model": "obedient"},
    "an input of a number": {"model": "obedient", "input": 7},
    "an unknown item": {"model": "obedient", "input": [{"type": "nothing"}]},
    "tools that are text": {"model": "obedient", "input": "x", "tools": "all"},
    "a temperature of text": {"model": "obedient", "input": "x", "temperature": "hot"},
}


async def create(client: httpx2.AsyncClient, asked: object, **more: object) -> dict[str, Any]:
    """A response."""
    answer = await client.post("/v1/responses", json={"model": "obedient", "input": asked, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(response: dict[str, Any]) -> str:
    """What the model said at last."""
    return next(item["content"][0]["text"] for item in reversed(response["output"]) if item["type"] == "message")


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, which ends as it should."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert data.pop() == "[DONE]"
    return [json.loads(each) for each in data]


async def test_a_response_is_read_and_forgotten_anywhere(
    client: httpx2.AsyncClient, stranger: httpx2.AsyncClient
) -> None:
    made = await create(client, "hi")
    assert (made["status"], text_of(made)) == ("completed", "you said hi")
    for _ in range(ROUNDS):
        read = await client.get(f"/v1/responses/{made['id']}")
        assert (read.status_code, read.json()["output"]) == (200, made["output"])
        items = (await client.get(f"/v1/responses/{made['id']}/input_items")).json()["data"]
        assert [item["content"][0]["text"] for item in items] == ["hi"]
        assert (await stranger.get(f"/v1/responses/{made['id']}")).status_code == 404
    assert (await stranger.delete(f"/v1/responses/{made['id']}")).status_code == 404
    assert (await client.delete(f"/v1/responses/{made['id']}")).json()["deleted"] is True
    for _ in range(ROUNDS):
        assert (await client.get(f"/v1/responses/{made['id']}")).status_code == 404


async def test_a_response_that_is_not_stored_is_not_found(client: httpx2.AsyncClient) -> None:
    made = await create(client, "hi", store=False)
    for _ in range(3):
        assert (await client.get(f"/v1/responses/{made['id']}")).status_code == 404


async def test_hosted_tools_run(client: httpx2.AsyncClient) -> None:
    made = await create(client, f"{PLUS}\ncall hello {{}}")
    hosted = [item for item in made["output"] if item["type"] == "mcp_call"]
    assert [(item["server_label"], item["name"], item["output"]) for item in hosted] == [
        ("wire", "plus", "3"),
        ("hello", "hello", "Hello, world!"),
    ]
    assert text_of(made) == "told: 3, Hello, world!"


async def test_a_stream_has_each_event_in_order(client: httpx2.AsyncClient) -> None:
    body = {"model": "obedient", "input": PLUS, "stream": True}
    for _ in range(3):
        events = events_of((await client.post("/v1/responses", json=body)).text)
        assert [event["sequence_number"] for event in events] == [*range(len(events))]
        types = [event["type"] for event in events]
        assert (types[0], types[-1]) == ("response.created", "response.completed")
        assert "response.mcp_call.completed" in types
        assert text_of(events[-1]["response"]) == "told: 3"


async def test_own_functions_are_given_back_and_answered_at_another_process(client: httpx2.AsyncClient) -> None:
    for _ in range(4):
        made = await create(client, f"{PLUS}\ncall city {{}}", tools=[CITY])
        (own,) = [item for item in made["output"] if item["type"] == "function_call"]
        assert [item["output"] for item in made["output"] if item["type"] == "mcp_call"] == ["3"]
        told = [{"type": "function_call_output", "call_id": own["call_id"], "output": "Cork"}]
        after = await create(client, told, tools=[CITY], previous_response_id=made["id"])
        assert "Cork" in text_of(after)


async def test_a_conversation_goes_on_anywhere(client: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    made = await create(client, "0")
    for number in range(1, 6):
        made = await create(client, str(number), previous_response_id=made["id"])
        assert text_of(made) == f"you said {number}"
        items = (await client.get(f"/v1/responses/{made['id']}/input_items?order=asc")).json()["data"]
        assert items[-1]["content"][0]["text"] == str(number)
    body = {"model": "obedient", "input": "x", "previous_response_id": made["id"]}
    assert (await stranger.post("/v1/responses", json=body)).status_code in (400, 404)


async def test_an_approval_is_given_in_the_next_request(client: httpx2.AsyncClient) -> None:
    for approve in (True, False):
        name = new_name("response")
        made = await create(client, f'call first {{"name": "{name}"}}', metadata={"toolplug_approvals": "items"})
        (asked,) = [item for item in made["output"] if item["type"] == "mcp_approval_request"]
        assert (asked["name"], json.loads(asked["arguments"])) == ("first", {"name": name})
        answer = {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": approve}
        after = await create(client, [answer], previous_response_id=made["id"])
        assert (text_of(after) == "told: 1") is approve


async def test_tools_of_a_session_are_used(client: httpx2.AsyncClient) -> None:
    async with application(client, lambda request: request["arguments"]["n"]) as app:
        for number in range(4):
            metadata = {"toolplug_session": app.code}
            made = await create(client, f'call add {{"n": {number}}}', metadata=metadata)
            assert text_of(made) == f"told: {number}"


async def test_tools_of_an_agent_are_used(client: httpx2.AsyncClient) -> None:
    made = await create(client, "call greet__hello {}", metadata={"toolplug_agent": "greeter"})
    assert text_of(made) == "told: Hello, world!"
    answer = await client.post(
        "/v1/responses",
        json={"model": "obedient", "input": "call greet__hello {}"},
        headers={"X-Toolplug-Agent": "greeter"},
    )
    assert text_of(answer.json()) == "told: Hello, world!"


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
async def test_a_wrong_request_is_refused(client: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    answer = await client.post("/v1/responses", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["resp_none", "resp_none/input_items"])
async def test_an_unknown_response_is_not_found(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(f"/v1/responses/{path}")).status_code == 404


async def test_a_model_that_fails_is_named_without_its_words(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/responses", json={"model": "obedient", "input": "fail"})
    assert "not well" not in answer.text
    assert answer.status_code >= 500 or answer.json()["status"] == "failed"


async def done(client: httpx2.AsyncClient, made: dict[str, Any]) -> dict[str, Any]:
    """A background response at its end."""
    async with asyncio.timeout(30):
        while made["status"] in ("queued", "in_progress"):
            await asyncio.sleep(0.02)
            made = (await client.get(f"/v1/responses/{made['id']}")).json()
    return made


async def test_a_background_response_is_read_anywhere(client: httpx2.AsyncClient) -> None:
    for _ in range(3):
        made = await create(client, PLUS, background=True)
        assert made["status"] in ("queued", "in_progress")
        assert text_of(await done(client, made)) == "told: 3"
        for _ in range(3):
            assert (await client.get(f"/v1/responses/{made['id']}")).json()["status"] == "completed"


async def test_a_background_response_is_cancelled_anywhere(client: httpx2.AsyncClient) -> None:
    for _ in range(4):
        made = await create(client, "wait", background=True)
        cancelled = await client.post(f"/v1/responses/{made['id']}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        for _ in range(3):
            assert (await client.get(f"/v1/responses/{made['id']}")).json()["status"] == "cancelled"


async def test_the_events_of_a_background_response_are_read_again(client: httpx2.AsyncClient) -> None:
    body = {"model": "obedient", "input": PLUS, "background": True, "stream": True}
    first = events_of((await client.post("/v1/responses", json=body)).text)
    place = f"/v1/responses/{first[0]['response']['id']}?stream=true"
    for after in (0, len(first) // 2):
        again = events_of((await client.get(f"{place}&starting_after={after}")).text)
        assert again == first[after + 1 :]


async def test_what_was_made_at_the_same_time_is_not_mixed(client: httpx2.AsyncClient) -> None:
    made = await asyncio.gather(*(create(client, f'call plus {{"a": {n}, "b": 0}}') for n in range(12)))
    assert [text_of(each) for each in made] == [f"told: {n}" for n in range(12)]
    assert len({each["id"] for each in made}) == 12


async def test_an_unknown_item_reference_is_refused(client: httpx2.AsyncClient) -> None:
    made = await create(client, "hi")
    reference = {"type": "item_reference", "id": made["output"][0]["id"]}
    after = await create(client, [reference, {"role": "user", "content": "again"}])
    assert text_of(after) == "you said again"
    body = {"model": "obedient", "input": [{"type": "item_reference", "id": "msg_none"}]}
    assert error_of(await client.post("/v1/responses", json=body))[0] in (400, 404)
