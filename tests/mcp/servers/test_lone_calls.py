"""Callers without a session: each call has a server of its own."""

from __future__ import annotations

import asyncio

import pytest
from tests.mcp.servers.scripted import Harness, run, settled

from toolplug.parts.mcp.client.connection import ConnectionFailed

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("I5-1-lone")
async def test_each_call_has_a_server_of_its_own_that_ends_after_it(harness: Harness) -> None:
    tools = await harness.tools()
    assert [(await run(tools.lone)).output for _ in range(2)] == ["now of 1", "now of 2"]
    await settled()
    assert harness.script.left == 2


async def test_a_call_that_is_cancelled_ends_its_server(harness: Harness) -> None:
    tools = await harness.tools()
    harness.script.answering = asyncio.Event()
    call = asyncio.create_task(run(tools.lone))
    await settled()
    call.cancel()
    await asyncio.wait({call})
    await settled()
    assert (len(harness.script.connections), harness.script.left) == (1, 1)


async def test_a_server_that_cannot_be_started_is_left_alone_for_a_while(harness: Harness) -> None:
    tools = await harness.tools()
    harness.script.fails = ConnectionFailed("no such program")
    results = [await run(tools.lone) for _ in range(2)]
    assert [result.status for result in results] == ["unavailable"] * 2
    assert results[1].retry_after_s is not None
    assert harness.script.tried == 1


@pytest.mark.requirement("I5-1-unplugged")
async def test_a_call_that_kills_its_server_does_not_keep_others_from_starting_theirs(harness: Harness) -> None:
    tools = await harness.tools()
    harness.script.answering = asyncio.Event()
    call = asyncio.create_task(run(tools.lone))
    await settled()
    harness.script.connections[0].die()
    assert (await call).status == "unavailable"
    harness.script.answering.set()
    assert (await run(tools.lone)).output == "now of 2"


async def test_the_end_of_the_host_ends_the_servers_of_calls_that_run(harness: Harness) -> None:
    tools = await harness.tools()
    harness.script.answering = asyncio.Event()
    call = asyncio.create_task(run(tools.lone))
    await settled()
    closing = asyncio.create_task(tools.aclose())
    await settled()
    harness.script.answering.set()
    await closing
    assert ((await call).output, harness.script.left) == ("now of 1", 1)
