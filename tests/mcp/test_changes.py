"""Clients hear that their list of tools has changed, after it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from httpx2 import AsyncClient
from mcp.client.client import Client
from mcp.client.subscriptions import ToolsListChanged
from mcp_types import ToolListChangedNotification
from tests.http.conftest import ALICE, ROOT
from tests.mcp.conftest import Opened, application, settings
from tests.mcp.test_sessions import path_of
from tests.mcp.test_tools import WAIT_S

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("C-6-list-changed")]

Next = Callable[[], Awaitable[list[str]]]


@asynccontextmanager
async def following(opened: Opened, era: str, path: str, **options: Any) -> AsyncIterator[Next]:
    """A client that hears of changes in the way of its era: each `await` gives the names after the next one."""
    if era == "2026-07-28":
        async with opened(path, **options) as client, client.listen(tools_list_changed=True) as subscription:

            async def after_event() -> list[str]:
                async with asyncio.timeout(WAIT_S):
                    assert await anext(subscription) == ToolsListChanged()
                return await names(client)

            yield after_event
        return
    heard = asyncio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            heard.set()

    async with opened(path, message_handler=hear, **options) as client:
        await names(client)

        async def after_notification() -> list[str]:
            async with asyncio.timeout(WAIT_S):
                await heard.wait()
            heard.clear()
            return await names(client)

        yield after_notification


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def until(following: Next, wanted: Callable[[list[str]], bool]) -> None:
    """Take the changes until the list is as wanted: several may be told as one, and one as a second after the first."""
    while not wanted(await following()):
        pass


async def test_a_client_hears_when_an_application_registers_and_changes_its_tools(
    url: str, opened: Opened, era: str
) -> None:
    app = application(url)

    @app.tool
    async def one() -> str:
        """The first."""
        return "1"

    async with app, following(opened, era, path_of(app.code)) as heard:

        @app.tool
        async def two() -> str:
            """The second."""
            return "2"

        await app.settled()
        await until(heard, lambda now: now[-2:] == ["one", "two"])
        app.remove("one")
        await app.settled()
        await until(heard, lambda now: now[-1] == "two" and "one" not in now)


@pytest.mark.parametrize("configured", [settings(sessions={"grace": "50ms"})])
async def test_a_client_hears_when_an_application_is_gone_for_longer_than_its_grace(
    url: str, opened: Opened, era: str
) -> None:
    async with AsyncClient(base_url=url, headers=ALICE, timeout=WAIT_S) as alice:
        created = (await alice.post("/api/sessions")).json()
        place, plugin = f"/api/sessions/{created['code']}", {"Authorization": f"Bearer {created['pluginToken']}"}
        body = {"pluginType": "table", "tools": [{"name": "lent", "inputSchema": {"type": "object"}}]}
        async with following(opened, era, path_of(created["code"])) as heard:
            async with alice.stream("GET", f"{place}/stream", headers=plugin):
                await alice.post(f"{place}/register-tools", json=body, headers=plugin)
                await until(heard, lambda now: now[-1] == "lent")
            await until(heard, lambda now: "lent" not in now)


async def test_a_client_hears_when_a_provider_goes_and_comes(url: str, opened: Opened, era: str) -> None:
    async with AsyncClient(base_url=url, headers=ROOT, timeout=WAIT_S) as root, following(opened, era, "/mcp") as heard:
        await root.post("/v1/providers/speaking/disable")
        await until(heard, lambda now: now == [])
        await root.post("/v1/providers/speaking/enable")
        await until(heard, lambda now: now[:2] == ["say", "move"])


async def test_a_change_in_one_session_is_not_told_in_another(url: str, opened: Opened, era: str) -> None:
    here, there = application(url), application(url)
    async with here, there, following(opened, era, path_of(here.code)) as heard:

        @there.tool
        async def elsewhere() -> str:
            """Not here."""
            return "there"

        await there.settled()

        @here.tool
        async def own() -> str:
            """Here."""
            return "here"

        await here.settled()
        await until(heard, lambda now: now[-1] == "own" and "elsewhere" not in now)


@pytest.mark.parametrize("era", ["2026-07-28"], indirect=True)
async def test_a_listener_that_wants_other_news_is_told_what_it_gets(opened: Opened) -> None:
    async with opened() as client, client.listen(prompts_list_changed=True) as subscription:
        assert subscription.honored.tools_list_changed is None
        assert subscription.honored.prompts_list_changed is True
        assert subscription.honored.resource_subscriptions is None


@pytest.mark.parametrize("era", ["2026-07-28"], indirect=True)
async def test_listening_ends_with_the_session(url: str, opened: Opened) -> None:
    async with AsyncClient(base_url=url, headers=ALICE, timeout=WAIT_S) as alice:
        code = (await alice.post("/api/sessions")).json()["code"]
        async with opened(path_of(code)) as client, client.listen(tools_list_changed=True) as subscription:
            await alice.delete(f"/api/sessions/{code}")
            async with asyncio.timeout(WAIT_S):
                assert [event async for event in subscription if event != ToolsListChanged()] == []
