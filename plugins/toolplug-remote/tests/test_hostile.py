"""Another host that is none, or that breaks the protocol: the link says what is wrong, and each call ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from toolplug import ToolStatus

from .conftest import Link

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.requirement("C-7-remote-hosts")]

TOOL = {"name": "who", "inputSchema": {"type": "object"}, "annotations": {}}
CONNECTED = {"host": "h", "delegate": False, "revision": 1, "resumed": False, "tools": [TOOL], "via": {}}
EVENTS = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
HTML = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\n<html"
MOVED = "HTTP/1.1 302 Found\r\nlocation: http://elsewhere.example/\r\ncontent-length: 0\r\n\r\n"
ZIPPED = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\nxx"
BUSY = "HTTP/1.1 429 Too Many\r\nretry-after: 7\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n"
FAILING_STREAM = "HTTP/1.1 500 Oops\r\ncontent-type: text/event-stream\r\n\r\n: never ends\n\n"
LIST = f"{EVENTS}event: connected\nid: 1\ndata: {json.dumps(CONNECTED)}\n\n"
HUGE = f"{EVENTS}event: result\ndata: {'x' * (17 * 1024 * 1024)}\n\n"


MANY = json.dumps({"output": "x", "status": "success", "structured": [1] * 70_000})


def result(data: str) -> str:
    """An answer to a call with this data of its result."""
    return f"{EVENTS}event: result\ndata: {data}\n\n"


@asynccontextmanager
async def host(
    listing: str | list[str],
    called: str = "",
    *,
    hold: bool = True,
    hold_calls: bool = False,
    streams: list[int] | None = None,
    bodies: list[object] | None = None,
) -> AsyncGenerator[str]:
    """A server that answers the stream and calls with these bytes, and keeps the stream or the calls open.

    A `listing` in a list may be replaced; `streams` has the number of open streams, `bodies` those of calls.
    """
    ended = asyncio.Event()

    async def held(reader: asyncio.StreamReader) -> None:
        """Wait until the client closes the stream, or the server ends."""
        if streams is not None:
            streams[0] += 1
        ends = [asyncio.ensure_future(ended.wait()), asyncio.ensure_future(reader.read())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if streams is not None:
            streams[0] -= 1

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        is_stream = b"/v1/tools/stream" in head
        if not is_stream and bodies is not None:
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            bodies.append(json.loads(await reader.readexactly(length)))
        writer.write(((listing if isinstance(listing, str) else listing[0]) if is_stream else called).encode())
        try:
            await writer.drain()
            if hold if is_stream else hold_calls:
                await held(reader)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        ended.set()
        server.close()


@pytest.mark.parametrize(
    ("listing", "said"),
    [
        (HTML, "it answers HTTP 200 with text/html, as no toolplug host does; check the URL"),
        (MOVED, "it redirects to 'http://elsewhere.example/', which is not followed; write that URL"),
        (ZIPPED, "the answer is compressed though we asked for none that is"),
        (FAILING_STREAM, "it answers HTTP 500 with text/event-stream, as no toolplug host does; check the URL"),
        (f"{EVENTS}event: connected\ndata: {{}}\n\n", "its event 'connected' cannot be read: 2 errors"),
        (f"{EVENTS}event: connected\ndata: [1\n\n", "its event 'connected' cannot be read: no '{' at character 0"),
        (f'{EVENTS}event: error\ndata: {{"code": "c", "message": "m"}}\n\n', "it has ended the stream: c: m"),
    ],
)
async def test_a_catalog_that_is_none_is_named_by_the_doctor(link: Link, listing: str, said: str) -> None:
    async with host(listing) as url, link(url) as here:
        assert list(here.tools.catalog) == []
        assert await here.doctor() == [f"toolset 'far', host {url}: {said}"]


@pytest.mark.parametrize(
    ("called", "status", "said"),
    [
        (HTML, ToolStatus.TOOL_ERROR, "it is text/html instead of an event stream"),
        (MOVED, ToolStatus.UNAVAILABLE, "which is not followed"),
        (BUSY, ToolStatus.LIMITED, "its host limits the calls of this toolset"),
        (result("{}"), ToolStatus.TOOL_ERROR, "the result has 2 invalid fields"),
        (result('{"output": "x", "status": "cancelled"}'), ToolStatus.TOOL_ERROR, "the status 'cancelled'"),
        (result('{"output": "x", "status": "fine"}'), ToolStatus.TOOL_ERROR, "the result has 1 invalid fields"),
        (HUGE, ToolStatus.TOOL_ERROR, "exceeded the 4194304 byte limit"),
        (result(MANY), ToolStatus.TOOL_ERROR, "the result has more than 65,536 values"),
        (result('{"output": "x", "status": "denied"}'), ToolStatus.DENIED, "denied by the host 'h' of this toolset: x"),
        (f"{EVENTS}event: progress\ndata: {MANY}\n\n", ToolStatus.TOOL_ERROR, "a report of progress has over 65,536"),
        (EVENTS, ToolStatus.TOOL_ERROR, "it is not known whether the tool has run"),
        ("", ToolStatus.TOOL_ERROR, "it is not known whether the tool has run"),
    ],
)
async def test_an_answer_that_is_none_ends_the_call(link: Link, called: str, status: ToolStatus, said: str) -> None:
    async with host(LIST, called) as url, link(url) as here:
        ended = await here.call("who")
        assert ended.status is status
        assert said in ended.output
        assert "elsewhere.example" not in ended.output
        assert "127.0.0.1" not in ended.output


@pytest.mark.parametrize(("header", "after_s"), [("", None), ("retry-after: 3\r\n", 3.0)])
async def test_only_a_host_that_says_when_is_asked_again(link: Link, header: str, after_s: float | None) -> None:
    called = f"HTTP/1.1 502 Bad\r\n{header}content-type: text/html\r\ncontent-length: 0\r\n\r\n"
    async with host(LIST, called) as url, link(url) as here:
        ended = await here.call("who")
        assert (ended.status, ended.retry_after_s) == (ToolStatus.UNAVAILABLE, after_s)


async def test_a_result_ends_the_call_though_its_stream_goes_on(link: Link) -> None:
    called = result('{"output": "x", "status": "success"}')
    async with host(LIST, called, hold_calls=True) as url, link(url) as here:
        ended = await here.call("who", deadline=asyncio.get_running_loop().time() + 5)
        assert (ended.status, ended.output) == (ToolStatus.SUCCESS, "x")


async def test_a_lost_call_of_an_idempotent_tool_is_made_again(link: Link) -> None:
    again = {**CONNECTED, "tools": [{**TOOL, "annotations": {"idempotentHint": True}}]}
    async with host(f"{EVENTS}event: connected\ndata: {json.dumps(again)}\n\n", EVENTS) as url, link(url) as here:
        ended = await here.call("who")
        assert ended.status is ToolStatus.UNAVAILABLE
        assert "was lost 3 times during the call" in ended.output


async def test_a_call_sends_its_deadline_and_approval(link: Link) -> None:
    bodies: list[object] = []
    async with host(LIST, result('{"output": "x", "status": "success"}'), bodies=bodies) as url, link(url) as here:
        await here.call("who", approval="apr_1", deadline=asyncio.get_running_loop().time() + 20)
    (body,) = bodies
    assert isinstance(body, dict)
    assert 15_000 < body.pop("timeoutMs") <= 19_950
    assert body == {"id": "c1", "name": "who", "arguments": {}, "approval": "apr_1"}


async def test_hostile_definitions_are_cleaned(link: Link) -> None:
    tools = [{**TOOL, "name": "bad name"}, {"name": 7}, {**TOOL, "description": "a\u200bb"}]
    sent = {**CONNECTED, "tools": tools}
    async with host(f"{EVENTS}event: connected\ndata: {json.dumps(sent)}\n\n") as url, link(url) as here:
        assert {name: tool.definition.description for name, tool in here.tools.catalog.items()} == {"far.who": "ab"}
