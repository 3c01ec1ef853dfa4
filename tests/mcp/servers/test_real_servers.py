"""Servers made with the SDK, in processes of their own, over both transports."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from tests.mcp.forking import Forked
from tests.mcp.servers import sdk_server
from tests.mcp.servers.scripted import TIME, Harness, record, run

from toolplug.net.egress import Egress
from toolplug.parts.mcp.client.server_config import Command, Endpoint, Transport
from toolplug.parts.mcp.client.server_tools import ServerTools
from toolplug.parts.mcp.sdk.client import connector

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]


@pytest.fixture
def command(forked: Forked) -> Command:
    """Starts a server of its own for each connection."""
    program, *arguments = forked(sdk_server.__file__, "stdio")
    return Command(command=program, args=tuple(arguments))


@pytest.fixture
def endpoint(forked: Forked) -> Iterator[Endpoint]:
    """One server for all connections."""
    with Popen(forked(sdk_server.__file__, "http"), stdout=PIPE) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield Endpoint(url=f"http://127.0.0.1:{port}/mcp", trusted=True)
        finally:
            process.kill()


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest, forked: Forked) -> Transport:
    return request.getfixturevalue("command" if request.param == "stdio" else "endpoint")


@pytest.fixture
async def tools(harness: Harness, transport: Transport, tmp_path: Path) -> AsyncIterator[ServerTools]:
    """The server's tools, known without asking it."""
    harness.connect = connector(Egress(()), tmp_path)
    known = [item.model_dump(mode="json", by_alias=True) for item in await sdk_server.server.list_tools()]
    made = await harness.tools(replace(TIME, transport=transport), *known)
    yield made
    await made.aclose()


async def heard(changed: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await changed.wait()


@pytest.mark.requirement("ROUTE-test-mcp")
async def test_results_of_every_kind_come_back_through_the_executor(tools: ServerTools) -> None:
    sums = await run(tools.live, "add", {"a": 1, "b": 2})
    assert (sums.status, sums.structured) == ("success", {"sum": 3})
    broken = await run(tools.live, "broken")
    assert broken.status == "tool_error"
    assert "it is broken" in broken.output
    picture = await run(tools.live, "picture")
    assert (picture.output, [part["type"] for part in picture.parts]) == ("a dot", ["image"])
    assert (await run(tools.live, "add", {"a": "one"})).status == "invalid_arguments"
    assert (await run(tools.live, "subtract")).status == "unknown_tool"
    assert tools.live.catalog["add"].definition.hints.read_only is True
    before = tools.live.catalog
    tools.show(await record(*await tools.listing()))
    assert not before.diff(tools.live.catalog)


async def test_progress_comes_through_before_the_result(tools: ServerTools) -> None:
    progress: list[tuple[object, ...]] = []
    result = await run(tools.live, "slow", report=lambda *told: progress.append(told))
    assert (result.output, progress) == ("done", [(1.0, 2.0, "half")])


@pytest.mark.parametrize("transport", ["stdio"], indirect=True)
async def test_sessions_and_lone_calls_have_processes_of_their_own(tools: ServerTools) -> None:
    one, two = tools.per_session(), tools.per_session()
    executors = (tools.live, tools.live, one, one, two, tools.lone)
    pids = [(await run(executor, "pid")).output for executor in executors]
    assert (pids[0], pids[2]) == (pids[1], pids[3])
    assert len({pids[0], pids[2], pids[4], pids[5]}) == 4
    await one.aclose()
    await two.aclose()
    await tools.aclose()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


@pytest.mark.requirement("H-mcp-dies")
@pytest.mark.parametrize("transport", ["stdio"], indirect=True)
async def test_a_server_that_dies_under_a_call_costs_that_call_only(tools: ServerTools) -> None:
    other = tools.per_session()
    await run(other, "pid")
    crashed = await run(tools.live, "crash")
    assert (crashed.status, crashed.metadata) == ("unavailable", {"code": "server_down"})
    again = await run(tools.live, "pid")  # at once: in less than a second the server may be started again
    assert again.status == "unavailable"
    assert again.retry_after_s is not None
    assert (await run(other, "pid")).status == "success"
    await other.aclose()


@pytest.mark.parametrize("transport", ["stdio"], indirect=True)
async def test_a_session_hears_that_its_own_server_has_a_tool_more(tools: ServerTools) -> None:
    session, other = tools.per_session(), tools.per_session()
    changed = asyncio.Event()
    await run(session, "pid")
    stop = session.subscribe(lambda difference: changed.set())
    await run(session, "grow")
    await heard(changed)
    stop()
    assert (await run(session, "grown")).status == "success"
    assert (await run(other, "grown")).status == "unknown_tool"
    await session.aclose()
    await other.aclose()


async def test_the_shared_connection_hears_of_changes(harness: Harness, tools: ServerTools) -> None:
    changed = asyncio.Event()
    await run(tools.live, "pid")
    before = harness.changes
    harness.when_changed = changed.set
    await run(tools.live, "grow")
    await heard(changed)
    assert harness.changes > before
    assert "grown" in [tool.name for tool in (await record(*await tools.listing())).tools]


@pytest.mark.requirement("H-mcp-restart")
@pytest.mark.parametrize("transport", ["stdio"], indirect=True)
async def test_a_server_that_is_killed_from_outside_is_down_and_leaves_nothing_behind(tools: ServerTools) -> None:
    pid = int((await run(tools.live, "pid")).output)
    os.kill(pid, signal.SIGKILL)
    statuses = {(await run(tools.live, "pid")).status for _ in range(3)}
    assert statuses == {"unavailable"}
