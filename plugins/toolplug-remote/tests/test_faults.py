"""Hosts that are killed and started again, and two hosts that link to each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from toolplug import CallContext, ToolCall, ToolStatus

from .conftest import ALICE, NAMES, PATIENCE_S, FarHost, Link

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.requirement("C-7-remote-hosts", "C-5-loops")]


async def test_a_host_that_is_killed_and_started_again(tmp_path: Path, link: Link) -> None:
    far = FarHost(tmp_path)
    far.start()
    try:
        async with link(far.url) as here:
            reports: asyncio.Queue[object] = asyncio.Queue()
            lost = asyncio.create_task(here.call("slow", report=lambda *said: reports.put_nowait(said)))
            async with asyncio.timeout(PATIENCE_S):
                await reports.get()
                await asyncio.to_thread(far.kill)
                result = await lost
            assert (result.status, result.metadata) == (ToolStatus.TOOL_ERROR, {"code": "outcome_unknown"})
            down = await here.call("who")
            assert (down.status, down.metadata) == (ToolStatus.UNAVAILABLE, {"code": "host_down"})
            assert list(here.tools.catalog) == NAMES
            [warning] = await here.doctor()
            assert "the 5 tools that it listed last are unavailable" in warning
            await asyncio.to_thread(far.start)
            async with asyncio.timeout(PATIENCE_S):
                while (await here.call("who")).status is not ToolStatus.SUCCESS:  # noqa: ASYNC110  another process
                    await asyncio.sleep(0.1)
    finally:
        await asyncio.to_thread(far.kill)


async def test_two_hosts_that_link_to_each_other_list_no_tool_twice(tmp_path: Path, link: Link) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    agents = {"researcher": {"toolsets": ["own", "other"]}}
    key = {"key": "agent-key", "subject": "link", "agents": ["researcher"]}
    own = {"prefix": "own", "from": "provider:notes"}
    first = FarHost(folders[0], toolsets={"own": own}, agents={"researcher": {"toolsets": ["own"]}})
    first.start()
    first.kill()  # its address is known from here on
    other = {"prefix": "other", "from": f"host:{first.url}", "api_key": "agent-key"}
    second = FarHost(folders[1], toolsets={"own": own, "other": other}, agents=agents, auth={"api_keys": [key]})
    second.start()
    back = {"prefix": "other", "from": f"host:{second.url}", "api_key": "agent-key"}
    again = FarHost(folders[0], toolsets={"own": own, "other": back}, agents=agents, auth={"api_keys": [key]})
    again.port = first.port
    again.start()
    try:
        async with link(again.url, "agent-key") as here:
            ours = [f"far.own.{name.removeprefix('far.')}" for name in NAMES]
            theirs = [f"far.other.own.{name.removeprefix('far.')}" for name in NAMES]
            await here.until(lambda: len(here.tools.catalog) >= len(NAMES) * 2)
            assert list(here.tools.catalog) == [*ours, *theirs]
            far_away = await here.tools.execute(ToolCall("c1", "far.other.own.who"), CallContext(principal=ALICE))
            assert isinstance(far_away.structured, dict)
            assert far_away.structured["hops"] == 2
    finally:
        await asyncio.to_thread(again.kill)
        await asyncio.to_thread(second.kill)
