"""A call as an event stream, and what becomes of a call whose client hangs up."""

from __future__ import annotations

import asyncio
import json

import pytest
from httpx2 import AsyncClient
from hypothesis import given
from hypothesis import strategies as st
from tests.http.conftest import ALICE, settings
from tests.http.conversation import Conversation

from toolplug import Host, open_host
from toolplug.http import create_app
from toolplug.http.requests import ClientWatch
from toolplug.http.tools import progress_frame

pytestmark = pytest.mark.anyio

STREAMED = {**ALICE, "Accept": "text/event-stream"}
HEADERS = [(b"host", b"localhost"), (b"x-api-key", b"alice-key")]
EVENTS = [*HEADERS, (b"accept", b"text/event-stream")]


def events(text: str) -> list[tuple[str, object]]:
    """Name and data of each event; anything else in the stream fails."""
    found: list[tuple[str, object]] = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


@pytest.mark.requirement("C-5-calls-stream", "I2-4-progress", "H-trust-event-injection")
@pytest.mark.parametrize("tool", ["counts", "counts_in_a_thread"])
async def test_progress_comes_as_events_and_then_one_result(client: AsyncClient, tool: str) -> None:
    body = {"id": "c1", "name": tool, "arguments": {"upto": 3}}
    answer = await client.post("/v1/tool-calls", headers=STREAMED, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    *progress, result = events(answer.text)
    told = {"total": 3} if tool == "counts" else {}
    assert [(name, {**data, "message": 0}) for name, data in progress] == [  # type: ignore[dict-item]
        ("progress", {"call_id": "c1", "progress": number, "message": 0, **told}) for number in (1, 2, 3)
    ]
    whole = await client.post("/v1/tool-calls", headers=ALICE, json=body)
    assert result == ("result", whole.json())


@pytest.mark.requirement("C-5-calls-stream", "C-5-calls-4xx")
async def test_a_wrong_request_for_a_stream_is_an_error_of_the_usual_shape(client: AsyncClient) -> None:
    answer = await client.post("/v1/tool-calls", headers=STREAMED, json={"name": 1})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "name")
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.requirement("C-5-idempotent-running", "C-5-idempotent-reused", "C-5-idempotent-replay")
async def test_a_key_that_cannot_be_honoured_is_an_error_in_both_modes(host: Host, client: AsyncClient) -> None:
    body = {"name": "waits"}
    for number, headers in enumerate((ALICE, STREAMED)):
        keyed = {**headers, "Idempotency-Key": f"key-{number}"}
        first = Conversation(
            "POST",
            "/v1/tool-calls",
            headers=[*HEADERS, (b"idempotency-key", b"key-%d" % number)],
            body=[json.dumps(body).encode()],
        )
        running = asyncio.create_task(first.held_with(create_app(host)))
        while host.registry.accounting.counters("sample", "waits").in_flight == 0:
            await asyncio.sleep(0)
        busy = await client.post("/v1/tool-calls", headers=keyed, json=body)
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "idempotency_key_running")
        first.hung_up.set()
        await running
    echo = {"name": "echo", "arguments": {"text": "x"}}
    keyed = {**STREAMED, "Idempotency-Key": "again"}
    assert "idempotent-replayed" not in (await client.post("/v1/tool-calls", headers=keyed, json=echo)).headers
    replayed = await client.post("/v1/tool-calls", headers=keyed, json=echo)
    assert replayed.headers["idempotent-replayed"] == "true"
    reused = await client.post("/v1/tool-calls", headers=keyed, json={"name": "waits"})
    assert (reused.status_code, reused.json()["error"]["code"]) == (422, "idempotency_key_reused")


@pytest.mark.requirement("C-3-cancelled-counted")
@pytest.mark.parametrize("headers", [HEADERS, EVENTS], ids=["answer", "stream"])
async def test_a_client_that_hangs_up_cancels_its_call(host: Host, headers: list[tuple[bytes, bytes]]) -> None:
    counters = host.registry.accounting.counters("sample", "waits")
    conversation = Conversation("POST", "/v1/tool-calls", headers=headers, body=[b'{"name": "waits"}'])
    running = asyncio.create_task(conversation.held_with(create_app(host)))
    while counters.in_flight == 0:
        await asyncio.sleep(0)
    conversation.hung_up.set()
    await running
    assert conversation.sent == []
    assert counters.ended == {"cancelled": 1}
    while counters.in_flight:
        await asyncio.sleep(0)


@pytest.mark.parametrize("headers", [HEADERS, EVENTS], ids=["answer", "stream"])
async def test_a_client_that_hangs_up_within_its_request_calls_nothing(
    host: Host, headers: list[tuple[bytes, bytes]]
) -> None:
    conversation = Conversation("POST", "/v1/tool-calls", headers=headers, body=[b'{"name": ', b'"echo"', b"}"])
    conversation._body[1:] = []
    conversation.hung_up.set()

    async def broken_off() -> dict[str, object]:
        return chunks.pop(0)

    chunks: list[dict[str, object]] = [
        {"type": "http.request", "body": b'{"name": ', "more_body": True},
        {"type": "http.disconnect"},
    ]
    await create_app(host)(conversation.scope, broken_off, conversation._send)
    assert conversation.sent == []
    assert host.registry.accounting.counters("sample", "echo").ended == {}


async def test_a_server_that_stops_cancels_the_request_and_the_call(host: Host) -> None:
    counters = host.registry.accounting.counters("sample", "waits")
    conversation = Conversation("POST", "/v1/tool-calls", headers=EVENTS, body=[b'{"name": "waits"}'])
    running = asyncio.create_task(conversation.held_with(create_app(host)))
    while counters.in_flight == 0:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    while counters.in_flight:
        await asyncio.sleep(0)
    assert counters.ended == {"cancelled": 1}


async def test_work_that_never_suspends_is_not_watched() -> None:
    asked: list[None] = []

    async def receive() -> dict[str, object]:
        asked.append(None)
        return {"type": "http.disconnect"}

    with ClientWatch(receive) as watch:
        pass
    await asyncio.sleep(0)
    assert (asked, watch.gone) == ([], False)
    with ClientWatch(receive) as watch:
        await asyncio.Event().wait()
    assert (asked, watch.gone) == ([None], True)


@pytest.mark.requirement("H-trust-event-injection", "C-12-report")
@given(
    progress=st.floats() | st.integers() | st.text(),
    total=st.none() | st.floats() | st.integers(),
    message=st.none() | st.text() | st.just("\ud800") | st.binary(),
)
async def test_whatever_a_tool_reports_is_one_event_of_two_lines_or_none(
    progress: float, total: float | None, message: str | None
) -> None:
    frame = progress_frame("c1", progress, total, message)
    if frame is not None:
        assert frame.count(b"\n") == 3
        assert frame.endswith(b"\n\n")
        assert events(frame.decode())[0][0] == "progress"


async def test_a_reader_that_is_slow_loses_the_oldest_progress_only(sample_package: None) -> None:
    async with open_host(settings(), environ={}) as host:
        conversation = Conversation(
            "POST",
            "/v1/tool-calls",
            headers=EVENTS,
            body=[b'{"name": "counts_in_a_thread", "arguments": {"upto": 2000}}'],
        )
        await conversation.held_with(create_app(host))
        *progress, result = events(conversation.body.decode())
        assert result[0] == "result"
        numbers = [data["progress"] for _, data in progress]  # type: ignore[index]
        assert numbers == sorted(numbers)
        assert numbers[-1] == 2000
