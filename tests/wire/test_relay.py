"""Calls to an application: requested at one process, sent by another, answered through a third."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from tests.wire.answers import error_of
from tests.wire.application import Application, application
from tests.wire.callers import Caller
from tests.wire.test_registration import created, tool

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]

RESULTS: dict[str, object] = {
    "zero": 0,
    "false": False,
    "empty text": "",
    "null": None,
    "empty list": [],
    "an object": {"a": [1, {"b": None}]},
    "a fraction": 1.5,
    "a large integer": 2**70,
    "text": "é\u2028\n",
    "a long text": "x" * 100_000,
}
ERRORS: list[object] = ["it rains", {"message": "it rains"}]
REFUSED: dict[str, dict[str, object]] = {
    "both": {"result": 1, "error": "x"},
    "neither": {},
    "an error of a number": {"error": 7},
    "an empty error": {"error": None},
}


async def waiting(app: Application, count: int = 1, **arguments: object) -> tuple[asyncio.Task[Any], dict[str, Any]]:
    """A call that waits, and its request."""
    calling = asyncio.create_task(app.call(**arguments))
    return calling, await app.heard("tool-request", count)


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS.keys())
async def test_a_result_reaches_the_caller(client: httpx2.AsyncClient, result: object) -> None:
    async with application(client, lambda request: result) as app:
        for _ in range(3):
            done = (await app.call()).json()
            assert (done["status"], done["is_error"]) == ("success", False)
            if result is None:
                assert done["output"] == "null"
            else:
                assert result == (done["output"] if isinstance(result, str) else done["structured"])


@pytest.mark.parametrize("error", ERRORS, ids=["text", "object"])
async def test_an_error_reaches_the_caller(client: httpx2.AsyncClient, error: object) -> None:
    async with application(client) as app:
        calling, request = await waiting(app)
        assert (await app.post("tool-results", {"id": request["id"], "error": error})).status_code == 200
        done = (await calling).json()
        assert (done["status"], done["output"]) == ("tool_error", "it rains")


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
async def test_a_wrong_answer_is_refused_and_the_call_waits_on(
    client: httpx2.AsyncClient, body: dict[str, object]
) -> None:
    async with application(client) as app:
        calling, request = await waiting(app)
        for _ in range(3):
            assert (await app.post("tool-results", {"id": request["id"], **body})).status_code == 400
        assert (await app.post("tool-results", {"id": request["id"], "result": "good"})).status_code == 200
        assert (await calling).json()["output"] == "good"


async def test_a_request_says_what_is_called(client: httpx2.AsyncClient) -> None:
    async with application(client) as app:
        body = {"id": "mine", "tool": "add", "arguments": {"n": 1}}
        calling = asyncio.create_task(client.post(f"{app.place}/tool-calls", json=body))
        request = await app.heard("tool-request")
        assert (request["tool"], request["arguments"], request["callId"]) == ("add", {"n": 1}, "mine")
        assert request["id"] != "mine"
        assert {"deadline", "attempt", "hostRequestId"} <= {*request}
        await app.post("tool-results", {"requestId": request["id"], "result": 1})
        assert (await calling).json()["call_id"] == "mine"


async def test_large_arguments_reach_the_application(client: httpx2.AsyncClient) -> None:
    async with application(client, lambda request: len(request["arguments"]["text"])) as app:
        for length in (3_000, 5_000, 300_000):
            assert (await app.call(text="x" * length)).json()["structured"] == length


async def test_arguments_are_checked_before_they_are_sent(client: httpx2.AsyncClient) -> None:
    async with application(client, lambda request: 1) as app:
        strict = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        added = {"toolUpdates": {"added": [tool("strict", inputSchema=strict)]}, "reason": ""}
        assert (await app.post("update-tools", added)).status_code == 200
        for _ in range(3):
            assert (await app.call("strict", n="x")).json()["status"] == "invalid_arguments"
            assert (await app.call("strict", n=1)).json()["status"] == "success"
        assert {request["arguments"]["n"] for request in app.named("tool-request")} == {1}


@pytest.mark.parametrize("name", ["gone", "never"])
async def test_a_tool_that_is_not_there_has_one_text(client: httpx2.AsyncClient, name: str) -> None:
    async with application(client) as app:
        await app.post("update-tools", {"toolUpdates": {"added": [tool("gone")]}, "reason": ""})
        await app.post("update-tools", {"toolUpdates": {"removed": ["gone"]}, "reason": ""})
        name = f"no-{name}" if name == "never" else name
        for _ in range(3):
            done = (await app.call(name)).json()
            assert (done["status"], done["output"]) == ("unknown_tool", f'session has no tool "{name}"')


async def test_a_new_tool_can_be_called_at_once(client: httpx2.AsyncClient) -> None:
    async with application(client, lambda request: request["tool"]) as app:
        for number in range(6):
            await app.post("update-tools", {"toolUpdates": {"added": [tool(f"t{number}")]}, "reason": ""})
            assert (await app.call(f"t{number}")).json()["output"] == f"t{number}"
            await app.post("update-tools", {"toolUpdates": {"removed": [f"t{number}"]}, "reason": ""})
            assert (await app.call(f"t{number}")).json()["status"] == "unknown_tool"


async def test_a_caller_that_leaves_cancels_its_call(client: httpx2.AsyncClient) -> None:
    async with application(client) as app:
        calling, request = await waiting(app)
        calling.cancel()
        cancelled = await app.heard("tool-cancelled")
        assert cancelled["id"] == request["id"]
        late = await app.post("tool-results", {"id": request["id"], "result": 1})
        assert error_of(late) == (410, "too_late")


async def test_a_call_waits_for_an_application_that_has_just_registered(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    await app.post("register-tools", {"tools": [tool("add")]})
    calling = asyncio.create_task(app.call(n=1))
    await asyncio.sleep(0.2)
    reading = asyncio.create_task(app.run(lambda request: request["arguments"]))
    try:
        assert (await calling).json()["structured"] == {"n": 1}
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_requests_are_sent_again_on_the_next_stream(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    await app.post("register-tools", {"tools": [tool("add")]})
    first = asyncio.create_task(app.run(None))
    await app.heard("connected")
    calling, request = await waiting(app, n=1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(app.run(None))
    try:
        again = await app.heard("tool-request", 2)
        assert (again["id"], again["arguments"]) == (request["id"], {"n": 1})
        assert (await app.post("tool-results", {"id": request["id"], "result": "once"})).status_code == 200
        assert error_of(await app.post("tool-results", {"id": request["id"], "result": "twice"}))[0] == 409
        assert (await calling).json()["output"] == "once"
    finally:
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


async def test_an_answer_of_another_session_is_refused(client: httpx2.AsyncClient) -> None:
    async with application(client) as app, application(client) as other:
        calling, request = await waiting(app)
        for _ in range(3):
            answer = await other.post("tool-results", {"id": request["id"], "result": "stolen"})
            assert error_of(answer) == (404, "request_not_found")
        await app.post("tool-results", {"id": request["id"], "result": "mine"})
        assert (await calling).json()["output"] == "mine"


async def test_progress_reaches_the_caller(client: httpx2.AsyncClient) -> None:
    async with application(client) as app:
        body = {"id": "c1", "name": "add", "arguments": {}, "session": app.code}
        headers = {"Accept": "text/event-stream"}
        calling = asyncio.create_task(client.post("/v1/tool-calls", json=body, headers=headers))
        request = await app.heard("tool-request")
        report = {"id": request["id"], "progress": 1, "total": 2, "message": "half"}
        assert (await app.post("tool-results", report)).json()["status"] == "progress"
        await asyncio.sleep(0.3)
        await app.post("tool-results", {"id": request["id"], "result": "done"})
        told = (await calling).text
        assert told.count("event: progress") == 1
        assert '"message":"half"' in told.replace(": ", ":")
        assert told.index("event: progress") < told.index("event: result")


async def test_a_queued_call_is_seen_everywhere(client: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    async with application(client) as app:
        body = {"id": "mine", "tool": "add", "arguments": {"n": 1}, "wait": False}
        answer = await client.post(f"{app.place}/tool-calls", json=body)
        assert (answer.status_code, answer.json()["status"]) == (202, "queued")
        place = f"{app.place}/tool-calls/{answer.json()['id']}"
        request = await app.heard("tool-request")
        for _ in range(3):
            state = (await client.get(place)).json()
            assert (state["call_id"], state["status"] in ("queued", "sent")) == ("mine", True)
        await app.post("tool-results", {"id": request["id"], "result": {"n": 2}})
        async with asyncio.timeout(30):
            while (await client.get(place)).json()["status"] != "done":
                await asyncio.sleep(0.02)
        for _ in range(3):
            state = (await client.get(place)).json()
            assert (state["status"], state["result"]["structured"]) == ("done", {"n": 2})
        assert (await stranger.get(place)).status_code == 404
        assert (await client.get(f"{app.place}/tool-calls/call_unknown")).status_code == 404


async def test_many_calls_at_once_have_each_their_own_answer(client: httpx2.AsyncClient, caller: Caller) -> None:
    async with application(client, lambda request: request["arguments"]["n"]) as app:
        done = await asyncio.gather(*(app.call(n=number) for number in range(60)))
        assert [each.json()["structured"] for each in done] == list(range(60))
        assert len({request["id"] for request in app.named("tool-request")}) == 60


async def test_an_idempotent_call_to_an_application_is_sent_once(client: httpx2.AsyncClient) -> None:
    async with application(client, lambda request: request["id"]) as app:
        body = {"tool": "add", "arguments": {}}
        headers = {"Idempotency-Key": "k1"}
        answers = [await client.post(f"{app.place}/tool-calls", json=body, headers=headers) for _ in range(4)]
        assert len({answer.json()["output"] for answer in answers}) == 1
        assert len(app.named("tool-request")) == 1
