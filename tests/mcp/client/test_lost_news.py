"""A stream of news that is lost while its server goes on: opened again, and the tools are looked at again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.mcp.client.news_server import Era, Fate, NewsServer
from tests.mcp.client.serving import serving

from toolplug.parts.mcp.client.connection import Connect
from toolplug.parts.mcp.client.server_config import Endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

SOON_S = 30.0
ERAS = ("2025-11-25", "2026-07-28")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("fates", [("closed",), ("broken", "refused", "broken")], ids="-".join)
@pytest.mark.requirement("C-8-triggers", "H-mcp-restart")
async def test_a_lost_stream_of_news_is_opened_again_and_counts_as_news(
    connect: Connect, era: Era, fates: Sequence[Fate]
) -> None:
    server, changed = NewsServer(era, fates), asyncio.Event()
    async with (
        asyncio.timeout(SOON_S),
        serving(server) as port,
        connect(Endpoint(url=f"http://127.0.0.1:{port}"), changed.set) as connection,
    ):
        await server.opened.wait()
        await changed.wait()
        changed.clear()
        server.news.set()
        await changed.wait()
        assert (connection.version, connection.open, server.streams) == (era, True, len(fates) + 1)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.requirement("C-8-triggers", "H-mcp-restart")
async def test_news_are_heard_late_of_a_server_that_cannot_tell_them_at_first(connect: Connect, era: Era) -> None:
    server, changed = NewsServer(era, ["refused", "refused", "refused"]), asyncio.Event()
    async with (
        asyncio.timeout(SOON_S),
        serving(server) as port,
        connect(Endpoint(url=f"http://127.0.0.1:{port}"), changed.set) as connection,
    ):
        await server.opened.wait()
        server.news.set()
        await changed.wait()
        assert connection.open
