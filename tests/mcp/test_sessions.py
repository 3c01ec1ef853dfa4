"""A session's endpoint: its tools beside the caller's, for its own tenant, as long as it lives."""

from __future__ import annotations

import asyncio

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE
from tests.mcp.conftest import Opened, application
from tests.mcp.test_tools import WAIT_S, text_of

from toolplug import CallContext

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("C-5-session-mcp")]

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}


def path_of(code: str) -> str:
    return f"/api/sessions/{code}/mcp"


async def test_an_applications_tools_stand_after_the_callers_and_are_called_like_them(url: str, opened: Opened) -> None:
    app = application(url)

    @app.tool
    async def double(number: int) -> int:
        """Double it."""
        return 2 * number

    async with app, opened(path_of(app.code)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert (names[0], names[-1]) == ("say", "double")
        assert text_of(await client.call_tool("double", {"number": 21})) == "42"
        assert text_of(await client.call_tool("whoami", {})) == f"alice@t1 None {app.code}"


async def test_two_sessions_side_by_side_show_and_call_their_own_tools_only(url: str, opened: Opened) -> None:
    table, chat = application(url), application(url, plugin_type="chat")

    @table.tool(name="describe")
    async def of_table() -> str:
        """Describe the table."""
        return "a table"

    @chat.tool(name="describe")
    async def of_chat() -> str:
        """Describe the chat."""
        return "a chat"

    @chat.tool
    async def send() -> str:
        """Send."""
        return "sent"

    async with table, chat, opened(path_of(table.code)) as one, opened(path_of(chat.code)) as other:
        assert [tool.name for tool in (await one.list_tools()).tools][-1] == "describe"
        assert [tool.name for tool in (await other.list_tools()).tools][-2:] == ["describe", "send"]
        assert text_of(await one.call_tool("describe", {})) == "a table"
        assert text_of(await other.call_tool("describe", {})) == "a chat"
        with pytest.raises(Exception, match='no builtin provider handles tool "send"'):
            await one.call_tool("send", {})


async def test_a_tool_has_its_wire_name_in_the_list_and_may_be_called_by_either(url: str, opened: Opened) -> None:
    app = application(url)

    @app.tool(name="files/read.all")
    async def read() -> str:
        """Read."""
        return "read"

    async with app, opened(path_of(app.code)) as client:
        tool = (await client.list_tools()).tools[-1]
        assert tool.name.startswith("files_read_all_-")
        assert tool.meta == {"toolplug/name": "files/read.all"}
        assert text_of(await client.call_tool(tool.name, {})) == "read"
        assert text_of(await client.call_tool("files/read.all", {})) == "read"


async def test_what_an_application_reports_reaches_the_client_and_its_cancellation_the_application(
    url: str, opened: Opened
) -> None:
    app = application(url)
    began, cancelled = asyncio.Event(), asyncio.Event()
    told: list[float] = []

    @app.tool
    async def works(context: CallContext) -> str:
        """Work for ever."""
        context.report(0.5)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)
        began.set()

    async with app, opened(path_of(app.code)) as client, asyncio.timeout(WAIT_S):
        calling = asyncio.create_task(client.call_tool("works", {}, progress_callback=hear))
        await began.wait()
        calling.cancel()
        await cancelled.wait()
    assert told == [0.5]
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_a_session_of_another_tenant_an_unknown_one_and_an_ended_one_are_told_apart_only_by_their_own_tenant(
    url: str,
) -> None:
    async with AsyncClient(base_url=url, headers=ALICE, timeout=WAIT_S) as alice:
        code = (await alice.post("/api/sessions")).json()["code"]
        answers = {}
        for name, key, path in (
            ("foreign", "bob-key", path_of(code)),
            ("unknown", "alice-key", path_of("AAAAAAAA")),
            ("malformed", "alice-key", path_of("nothing")),
        ):
            refused = await alice.post(path, json=INITIALIZE, headers=key_(key))
            answers[name] = refused.status_code, refused.json()["error"]["code"]
        await alice.delete(f"/api/sessions/{code}")
        ended = await alice.post(path_of(code), json=INITIALIZE)
    assert answers == {
        "foreign": (404, "session_not_found"),
        "unknown": (404, "session_not_found"),
        "malformed": (400, "invalid_session_code"),
    }
    assert (ended.status_code, ended.json()["error"]["code"]) == (410, "session_ended")


def key_(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_plugins_token_opens_neither_endpoint(url: str) -> None:
    async with AsyncClient(base_url=url, headers=ALICE, timeout=WAIT_S) as alice:
        created = (await alice.post("/api/sessions")).json()
        for path in ("/mcp", path_of(created["code"])):
            for method in ("POST", "GET", "DELETE"):
                refused = await alice.request(method, path, headers=key_(created["pluginToken"]))
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_audience")
