"""One answer to each request and no event lost, whatever the network and the host do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.client.fixtures import QUICK, application, entered, waited
from tests.client.scripted_host import CODE, Said, ScriptedHost, refused

from toolplug.client import SessionOver

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.mark.requirement("I3-5-python-client")
async def test_a_request_that_is_sent_again_runs_once_and_is_answered_once(host: ScriptedHost) -> None:
    app, began, may_end, calls = application(host), asyncio.Event(), asyncio.Event(), []

    @app.tool
    async def work(number: int) -> int:
        calls.append(number)
        began.set()
        await waited(may_end)
        return number

    async with entered(app, host) as stream:
        await stream.request("r1", "work", number=1)
        await waited(began)
        stream.cut()
        newer = await host.stream()
        await newer.request("r1", "work", 2, number=1)
        may_end.set()
        assert await host.result() == {"id": "r1", "result": 1}
        await newer.request("r1", "work", 3, number=1)
        await newer.request("r2", "work", number=2)
        assert await host.result() == {"id": "r2", "result": 2}
    assert calls == [1, 2]


@pytest.mark.requirement("I3-5-python-client")
@pytest.mark.parametrize("end", ["cut", "close"])
async def test_a_stream_that_breaks_is_opened_again_after_its_last_event(host: ScriptedHost, end: str) -> None:
    app = application(host)

    @app.tool
    async def ping() -> str:
        return "pong"

    async with entered(app, host) as stream:
        assert "last-event-id" not in stream.heard.headers
        await stream.request("r1", "ping", position=7)
        await host.result()
        getattr(stream, end)()
        newer = await host.stream()
        assert newer.heard.headers["last-event-id"] == "7"
        await newer.request("r2", "ping", position=8)
        assert await host.result() == {"id": "r2", "result": "pong"}


@pytest.mark.parametrize(
    "raw",
    [
        b"id: 9\nevent: tool-request\ndata: {half\n\n",
        b"id: 9\nevent: tool-request\ndata: []\n\n",
        b"id: 9\nevent: tool-cancelled\ndata: {}\n\n",
        b"id: 9\nevent: error\ndata: 1\n\n",
        b"id: 9\nevent: tool-request\ndata: \xff\n\n",
    ],
)
async def test_after_an_event_that_cannot_be_read_it_asks_for_a_snapshot(host: ScriptedHost, raw: bytes) -> None:
    async with entered(application(host), host) as stream:
        await stream.send("heartbeat", {}, 8)
        await stream.write(raw)
        newer = await host.stream()
        assert "last-event-id" not in newer.heard.headers


async def test_events_of_other_names_and_other_keys_are_passed_over(host: ScriptedHost) -> None:
    app = application(host)

    @app.tool
    async def ping() -> str:
        return "pong"

    async with entered(app, host) as stream:
        await stream.write(b": comment\r\nretry: 10\r\n\r\nevent: from-tomorrow\r\ndata: ?\r\n\r\n")
        await stream.send("connected", {"sessionCode": CODE}, 1)
        await stream.send("tool-request", {"id": "r1", "tool": "ping", "arguments": {}, "mood": "good"}, 2)
        assert await host.result() == {"id": "r1", "result": "pong"}


async def test_a_stream_that_falls_silent_is_opened_again(host: ScriptedHost) -> None:
    async with entered(application(host, backoff=replace(QUICK, silence_s=0.05)), host):
        await host.stream()


@pytest.mark.parametrize(
    "answer",
    [
        Said(0),
        Said(200, b"<html>"),
        Said(503, b"busy"),
        refused(503, "busy", Retry_After="soon"),
        refused(429, "too_many", Retry_After="0"),
    ],
)
async def test_a_host_that_is_away_or_busy_is_asked_again(host: ScriptedHost, answer: Said) -> None:
    app = application(host)

    @app.tool
    async def ping() -> str:
        return "pong"

    host.says("stream", answer, answer)
    async with entered(app, host) as stream:
        host.says("tool-results", answer, answer)
        await stream.request("r1", "ping")
        await stream.request("r2", "ping")
        sent = [(await host.result())["id"] for _ in range(4)]
    assert len(host.asked("stream")) == 3
    assert set(sent) == {"r1", "r2"}


@pytest.mark.parametrize("code", ["session_expired", "session_ended", "auth_expired"])
async def test_an_error_event_ends_it_with_an_exception_that_says_why(host: ScriptedHost, code: str) -> None:
    app = application(host)
    async with entered(app, host) as stream:
        await stream.send("error", {"code": code, "message": "it is over"}, 1)
        with pytest.raises(SessionOver, match="it is over") as raised:
            await app.serve()
        with pytest.raises(SessionOver):
            await app.settled()
    assert raised.value.code == code


@pytest.mark.parametrize("status", [401, 403, 404, 410])
@pytest.mark.parametrize("route", ["stream", "tool-results"])
async def test_what_is_final_is_not_asked_again(host: ScriptedHost, status: int, route: str) -> None:
    app = application(host)

    @app.tool
    async def ping() -> str:
        return "pong"

    host.says(route, refused(status, "session_expired", "too late"))
    async with app:
        if route == "tool-results":
            await (await host.stream()).request("r1", "ping")
        with pytest.raises(SessionOver, match="too late"):
            await app.serve()
    assert len(host.asked(route)) == 1


@pytest.mark.parametrize(
    ("answer", "sent_again"),
    [
        (
            refused(413, "body_too_large", "too large"),
            [{"id": "r1", "error": "the host does not take the result: too large"}],
        ),
        (refused(409, "already_answered"), []),
        (refused(410, "too_late"), []),
        (refused(404, "request_not_found"), []),
    ],
)
async def test_an_answer_that_the_host_refuses_ends_its_request_alone(
    host: ScriptedHost, answer: Said, sent_again: list[dict[str, str]]
) -> None:
    app = application(host)

    @app.tool
    async def large() -> str:
        return "x" * 1000

    host.says("tool-results", answer)
    async with entered(app, host) as stream:
        await stream.request("r1", "large")
        assert (await host.result())["result"]
        assert [await host.result() for _ in sent_again] == sent_again
        await stream.request("r2", "large")
        assert (await host.result())["id"] == "r2"
