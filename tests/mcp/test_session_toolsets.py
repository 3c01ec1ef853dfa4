"""An MCP session is a session for toolsets that are made for each: one executor, made at need and closed once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE, client_of, settings
from tests.http.jumping_loop import Jump, on_jumping_loop
from tests.mcp.test_transport import introduced, message, modern
from tests.toolsets.harness import READ, Shop

from toolplug import Host, open_host
from toolplug.http import create_app
from toolplug.parts.mcp.serving.mcp_sessions import IDLE_S

pytestmark = pytest.mark.requirement("C-7-session-mcp")

AT = "/mcp?agent=writer"
WRITER = {"agents": {"writer": {"toolsets": ["fs"]}}}


@asynccontextmanager
async def shop_host(shop: Shop, *, declared: bool = True) -> AsyncIterator[tuple[Host, AsyncClient]]:
    """A host whose agent has one toolset, which the shop makes for each session; and Alice."""
    host = open_host(settings(providers=None, **WRITER), environ={})
    host.register_toolset("fs", "fs", shop, READ if declared else None)
    async with host, client_of(create_app(host)) as client:
        client.headers.update({**ALICE, "Accept": "application/json, text/event-stream"})
        yield host, client


async def read(client: AsyncClient, known: dict[str, str] | None) -> str:
    """What the toolset answers; the request is of the newer era where no handshake is given."""
    called = {"name": "fs__read", "arguments": {}}
    sent = (
        modern("tools/call", **called) if known is None else {"json": message("tools/call", called), "headers": known}
    )
    return (await client.post(AT, **sent)).json()["result"]["content"][0]["text"]


async def settled() -> None:
    """Let what was told to close, close."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.anyio
@pytest.mark.parametrize("declared", [True, False])
async def test_each_client_that_introduced_itself_has_an_executor_of_its_own_until_it_says_goodbye(
    declared: bool,
) -> None:
    shop = Shop()
    async with shop_host(shop, declared=declared) as (_, client):
        one, other = await introduced(client, AT), await introduced(client, AT)
        assert shop.made == []
        assert [await read(client, known) for known in (one, one, other, one)] == [
            "files 1",
            "files 1",
            "files 2",
            "files 1",
        ]
        assert (await client.delete(AT, headers=one)).status_code == 204
        await settled()
        assert shop.closed == [1, 0]
        assert (await client.post(AT, json=message("tools/list"), headers=one)).status_code == 404
        assert await read(client, other) == "files 2"
    assert shop.closed == [1, 1]


@pytest.mark.anyio
@pytest.mark.requirement("C-7-first-use-opens")
async def test_the_first_listing_of_a_session_opens_what_its_calls_use() -> None:
    shop = Shop()
    async with shop_host(shop, declared=False) as (_, client):
        known = await introduced(client, AT)
        listed = (await client.post(AT, json=message("tools/list"), headers=known)).json()["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["fs__read"]
        assert await read(client, known) == "files 1"
        assert len(shop.made) == 1


@pytest.mark.anyio
async def test_a_client_without_a_handshake_gets_an_executor_for_each_call() -> None:
    shop = Shop()
    async with shop_host(shop) as (_, client):
        assert [await read(client, None) for _ in range(2)] == ["files 1", "files 2"]
        await settled()
        assert shop.closed == [1, 1]


def test_a_session_that_nobody_uses_is_closed_though_nobody_comes_any_more() -> None:
    shop = Shop()

    async def scenario(jump: Jump) -> None:
        async with shop_host(shop) as (_, client):
            assert await read(client, await introduced(client, AT)) == "files 1"
            jump(IDLE_S / 2)
            await settled()
            assert shop.closed == [0]
            jump(IDLE_S / 2)
            while shop.closed == [0]:
                await asyncio.sleep(0)
        assert shop.closed == [1]

    on_jumping_loop(scenario)
