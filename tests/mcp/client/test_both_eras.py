"""Servers made with the SDK, over pipes and HTTP, in the era of handshakes and in the newer one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from tests.http.served import serving_apart
from tests.mcp.client import good
from tests.mcp.client.conftest import nobody
from tests.mcp.forking import Forked

from toolplug.parts.mcp.client.connection import Connect, McpAnswer, ServerConnection
from toolplug.parts.mcp.client.server_config import Command, Endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

SOON_S = 20.0
ERAS = ["2025-11-25", "2026-07-28"]

Opened = Callable[..., AbstractAsyncContextManager[ServerConnection]]


def said(text: str, structured: object) -> McpAnswer:
    return McpAnswer([{"type": "text", "text": text}], structured, False)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["pipes", "http"])
def opened(request: pytest.FixtureRequest, connect: Connect, era: str, forked: Forked) -> Opened:
    """A connection to a new server: `async with opened(on_change) as connection`."""

    @asynccontextmanager
    async def over_pipes(on_change: Callable[[], None] = nobody) -> AsyncIterator[ServerConnection]:
        program, *arguments = forked(good.__file__, *(["handshake"] if era == ERAS[0] else []))
        async with connect(Command(command=program, args=tuple(arguments)), on_change) as connection:
            yield connection

    @asynccontextmanager
    async def over_http(on_change: Callable[[], None] = nobody) -> AsyncIterator[ServerConnection]:
        app = good.made().streamable_http_app()
        with serving_apart(good.HandshakeOnly(app) if era == ERAS[0] else app) as port:
            async with connect(Endpoint(url=f"http://127.0.0.1:{port}/mcp"), on_change) as connection:
                yield connection

    return over_pipes if request.param == "pipes" else over_http


async def test_tools_are_listed_and_called(opened: Opened, era: str) -> None:
    async with opened() as connection:
        assert (connection.version, connection.open) == (era, True)
        calls = [connection.call("add", {"a": number, "b": 1}, None) for number in range(20)]
        sums = await asyncio.gather(*calls)
        assert [answer.structured for answer in sums] == [{"sum": number + 1} for number in range(20)]
        failed = await connection.call("add", {"a": "x"}, None)
        assert failed.is_error
    assert not connection.open


async def test_an_argument_goes_in_a_header_also_where_the_tools_were_never_listed(opened: Opened) -> None:
    async with opened() as connection:
        for _ in range(2):
            answer = await connection.call("region", {"where": "north"}, None)
            assert answer._replace(meta={}) == said("north", {"result": "north"})


async def test_a_trace_context_goes_in_the_meta_of_the_request_and_over_http_in_headers(
    opened: Opened, request: pytest.FixtureRequest
) -> None:
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1"}
    none = {"traceparent": None, "tracestate": None}
    over_http = "http" in request.node.callspec.params.values()
    async with opened() as connection:
        answer = await connection.call("traced", {}, None, trace)
        assert answer.structured == {"meta": trace, "headers": trace if over_http else none}
        assert (await connection.call("traced", {}, None)).structured == {"meta": none, "headers": none}


async def test_a_call_that_is_cancelled_ends_at_the_server(opened: Opened) -> None:
    began = asyncio.Event()
    heard: list[tuple[float, float | None, str | None]] = []

    def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        heard.append((progress, total, message))
        began.set()

    async with opened() as connection, asyncio.timeout(SOON_S):
        call = asyncio.create_task(connection.call("wait", {}, report))
        await began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert heard == [(1.0, 2.0, "half")]
        assert (await connection.call("ends", {}, None)).structured == {"result": ["wait"]}


async def test_a_change_of_the_tools_is_heard(opened: Opened) -> None:
    changed = asyncio.Event()
    async with opened(changed.set) as connection, asyncio.timeout(SOON_S):
        while not changed.is_set():
            await connection.call("grow", {}, None)
            await asyncio.sleep(0)
        names = [tool["name"] for tool in await connection.tools() if isinstance(tool, dict)]
        assert "grown" in names
