"""A host that is down: what it listed last is kept over restarts and marked stale; a plugin that is switched off."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from toolplug import ToolStatus

from .conftest import ALICE, PATIENCE_S, Link
from .test_hostile import CONNECTED, EVENTS, LIST, host

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I17-5-stale")]

DONE = {"output": "me", "status": "success"}
ANSWER = f"{EVENTS}event: result\ndata: {json.dumps(DONE)}\n\n"
OTHERS = {**CONNECTED, "tools": []}


async def test_a_catalog_is_kept_over_restarts_and_stale_until_the_host_is_back(tmp_path: Path, link: Link) -> None:
    store = f"sqlite:////{tmp_path}/state.db"
    async with host(LIST, ANSWER) as url, link(url, store=store) as here:
        assert [(tool["name"], tool["stale"], tool["callable"]) for tool in here.catalog()] == [
            ("far.who", False, True)
        ]
        assert (here.source_gate().verdict, here.source_gate().detail) == ("passes", "connected, through the hosts h")
        assert (await here.call("who")).output == "me"
    async with link(url, store=store) as here:
        assert [(tool["name"], tool["stale"], tool["callable"]) for tool in here.catalog()] == [
            ("far.who", True, False)
        ]
        assert here.source_gate().verdict == "refuses"
        assert here.source_gate().detail == "its host is down; toolplug doctor says why"
        down = await here.call("who")
        assert down.status is ToolStatus.UNAVAILABLE
        assert "127.0.0.1" not in down.output  # callers need not know where it is
        assert url in (await here.doctor())[0]
    for other in ({"key": "another-key-another-key"}, {"store": "memory://"}):
        async with link(url, **{"store": store, **other}) as here:
            assert here.catalog() == []


async def test_a_host_that_lists_other_tools_now_replaces_what_was_kept(tmp_path: Path, link: Link) -> None:
    store = f"sqlite:////{tmp_path}/state.db"
    listings = [LIST]
    async with host(listings) as url:
        async with link(url, store=store) as here:
            assert len(here.catalog()) == 1
        listings[0] = f"{EVENTS}event: connected\ndata: {json.dumps(OTHERS)}\n\n"
        async with link(url, store=store) as here:
            await here.until(lambda: not here.tools.catalog)
    async with link(url, store=store) as here:
        assert here.catalog() == []


async def test_a_plugin_that_is_switched_off_closes_its_links(link: Link) -> None:
    streams = [0]
    async with host(LIST, ANSWER, streams=streams) as url, link(url) as here:
        assert streams == [1]
        await here.host.disable("host", by=ALICE)
        assert here.catalog() == []
        async with asyncio.timeout(PATIENCE_S):
            while streams != [0]:  # noqa: ASYNC110  the other end of a connection
                await asyncio.sleep(0.01)
        await here.host.enable("host", by=ALICE)
        await here.until(lambda: len(here.tools.catalog) == 1)
        assert (await here.call("who")).output == "me"
