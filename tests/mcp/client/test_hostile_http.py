"""Servers over HTTP that misbehave: one result for each request, and the next one works."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from tests.kept_port import kept_port
from tests.mcp.client.conftest import nobody
from tests.mcp.client.hostile_http import FRAME, HostileHttp
from tests.mcp.client.serving import dying, serving

from toolplug.parts.mcp.client.connection import BadAnswer, Connect, ConnectionFailed, McpAnswer, ServerRefused
from toolplug.parts.mcp.client.server_config import Endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

SOON_S = 20.0


def said(text: str) -> McpAnswer:
    return McpAnswer([{"type": "text", "text": text}], None, False)


@pytest.fixture
def server() -> HostileHttp:
    return HostileHttp()


@pytest.fixture
async def url(server: HostileHttp) -> AsyncIterator[str]:
    async with serving(server) as port:
        yield f"http://127.0.0.1:{port}"
        server.gone.set()


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("a-bomb", "the answer is compressed though we asked for none that is"),
        ("endless-json", "the answer is larger than 6,291,456 bytes"),
        ("more-than-a-frame", "the answer is larger than 6,291,456 bytes"),
        ("an-endless-event", "it sent an event of more than 6,291,456 bytes"),
        ("endless-garbage", "it sent more than 1,000 events in a row that are no messages"),
        ("an-unreadable-answer", "its answer cannot be read"),
        ("another-id", "it sent something that is no answer to the request"),
        ("no-answer", "it sent something that is no answer to the request"),
        ("no-json", "it sent something that is no answer to the request"),
        ("a-page", "it sent something that is no answer to the request"),
        ("accepted", "it sent something that is no answer to the request"),
    ],
)
@pytest.mark.requirement("H-mcp-http", "H-mcp-floods", "H-limit-frame")
async def test_what_is_no_answer_is_a_bad_answer_of_that_request_only(
    connect: Connect, url: str, mode: str, reason: str
) -> None:
    async with connect(Endpoint(url=f"{url}/{mode}"), nobody) as connection, asyncio.timeout(SOON_S):
        for _ in range(2):
            with pytest.raises(BadAnswer) as bad:
                await connection.call("echo", {}, None)
            assert str(bad.value) == reason
        assert connection.open
        assert len(await connection.tools()) == 2


@pytest.mark.requirement("H-mcp-garbage")
@pytest.mark.parametrize("mode", ["some-garbage", "odd-news", "a-byte-order-mark"])
async def test_noise_before_an_answer_disturbs_no_call(connect: Connect, url: str, mode: str) -> None:
    async with connect(Endpoint(url=f"{url}/{mode}"), nobody) as connection:
        for number in range(3):
            assert await connection.call("echo", {"n": number}, None) == said(f'{{"n": {number}}}')


@pytest.mark.requirement("H-limit-frame")
async def test_an_answer_of_one_frame_passes(connect: Connect, url: str) -> None:
    async with connect(Endpoint(url=f"{url}/a-full-frame"), nobody) as connection:
        answer = await connection.call("echo", {}, None)
    assert FRAME - 200 < len(str(answer.content[0]["text"])) < FRAME


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("401", r"it refuses our credentials \(HTTP 401 Unauthorized\)"),
        ("503", "it answered with HTTP 503 Service Unavailable"),
        ("500", "it answered with HTTP 500 Internal Server Error"),
        ("elsewhere", "Redirect to http://localhost:1/secret not followed"),
    ],
)
@pytest.mark.requirement("H-mcp-http")
async def test_a_server_that_cannot_be_opened_says_why_without_a_secret(
    connect: Connect, server: HostileHttp, url: str, mode: str, reason: str
) -> None:
    with pytest.raises(ConnectionFailed, match=reason) as failed:
        async with connect(Endpoint(url=f"{url}/{mode}", headers={"x-key": "s3cret-value"}), nobody):
            pass
    assert "s3cret" not in str(failed.value)
    assert "token" not in str(failed.value)


@pytest.mark.parametrize(
    ("mode", "kind", "reason"),
    [
        ("401-at-call", ConnectionFailed, "it refuses our credentials"),
        ("503-at-call", ConnectionFailed, "it answered with HTTP 503"),
        ("429-at-call", ServerRefused, "it answered with HTTP 429"),
        ("refuses", ServerRefused, "no way"),
        ("elsewhere-at-call", ServerRefused, "not followed"),
        ("breaks-off", ConnectionFailed, "its answer broke off"),
    ],
)
@pytest.mark.requirement("H-mcp-http")
async def test_what_a_call_ends_with_does_not_end_the_connection(
    connect: Connect, url: str, mode: str, kind: type[Exception], reason: str
) -> None:
    async with connect(Endpoint(url=f"{url}/{mode}"), nobody) as connection:
        for _ in range(2):
            with pytest.raises(kind, match=reason):
                await connection.call("echo", {}, None)
        assert connection.open
        assert len(await connection.tools()) == 2


async def test_a_redirect_within_the_server_is_followed(connect: Connect, server: HostileHttp, url: str) -> None:
    async with connect(Endpoint(url=f"{url}/aside"), nobody) as connection:
        assert await connection.call("echo", {"a": 1}, None) == said('{"a": 1}')


async def test_headers_go_with_every_request_and_nothing_else_of_ours(
    connect: Connect, server: HostileHttp, url: str
) -> None:
    async with connect(Endpoint(url=f"{url}/sane", headers={"X-Key": "s3cret-value"}), nobody) as connection:
        await connection.tools()
    assert all(headers["x-key"] == "s3cret-value" for headers in server.headers)
    assert not any({"authorization", "cookie"} & headers.keys() for headers in server.headers)
    assert {headers["accept-encoding"] for headers in server.headers} == {"identity"}


async def test_progress_is_reported(connect: Connect, url: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    async with connect(Endpoint(url=f"{url}/progress"), nobody) as connection:
        await connection.call("echo", {}, lambda *progress: heard.append(progress))
    assert heard == [(1.0, None, "half")]


@pytest.mark.requirement("H-mcp-dies")
async def test_a_session_that_the_server_forgot_ends_the_connection(connect: Connect, url: str) -> None:
    async with connect(Endpoint(url=f"{url}/forgets"), nobody) as connection, asyncio.timeout(SOON_S):
        with pytest.raises(ConnectionFailed, match="it no longer knows our session"):
            await connection.call("echo", {}, None)
        await connection.wait_closed()
        assert not connection.open


@pytest.mark.requirement("H-mcp-dies")
async def test_a_server_that_is_not_there_is_said_to_be(connect: Connect) -> None:
    with kept_port() as port, pytest.raises(ConnectionFailed, match=f"cannot connect to 127.0.0.1:{port}"):
        async with connect(Endpoint(url=f"http://127.0.0.1:{port}/mcp"), nobody):
            pass


@pytest.mark.requirement("H-mcp-dies")
async def test_the_connection_ends_when_its_server_does(connect: Connect) -> None:
    async with dying() as port, connect(Endpoint(url=f"http://127.0.0.1:{port}/mcp"), nobody) as connection:
        async with asyncio.timeout(SOON_S):
            for reason in ("Server disconnected", "cannot connect"):
                with pytest.raises(ConnectionFailed, match=reason):
                    await connection.call("echo", {}, None)
            await connection.wait_closed()


@pytest.mark.parametrize("mode", ["mute", "no-cancellations"])
async def test_a_call_without_an_answer_can_be_cancelled_and_the_next_one_works(
    connect: Connect, server: HostileHttp, url: str, mode: str
) -> None:
    async with connect(Endpoint(url=f"{url}/{mode}"), nobody) as connection:
        call = asyncio.create_task(connection.call("echo", {}, None))
        while ("POST", "tools/call") not in server.seen:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(await connection.tools()) == 2


@pytest.mark.parametrize("url", ["ftp://a.example/", "nonsense", "http://", "http://[::1"], indirect=False)
async def test_a_url_that_is_none_is_refused(connect: Connect, url: str) -> None:
    with pytest.raises(ConnectionFailed, match="URL"):
        async with connect(Endpoint(url=url), nobody):
            pass


@pytest.mark.requirement("H-mcp-garbage")
async def test_what_a_server_sends_is_in_no_log(connect: Connect, url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for mode in ("some-garbage", "no-json", "a-page", "401-at-call"):
            async with connect(Endpoint(url=f"{url}/{mode}"), nobody) as connection:
                with pytest.raises(Exception) if mode != "some-garbage" else pytest.MonkeyPatch.context():
                    await connection.call("echo", {}, None)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "a server sent an event that is no message: 1 byte",
        "a server sent an event that is no message: 90 bytes",
        "a server sent an event that is no message: 1 byte",
    ]
