"""What a server behind a host asks during a call, through to the user of the client that made the call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult
from tests.http.conftest import ALICE, KEYS, with_agents_of_keys
from tests.http.served import served
from tests.mcp.conftest import Opened
from tests.mcp.servers import asking_server
from tests.mcp.test_passed_through import discovered
from tests.mcp.test_tools import text_of

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [
    pytest.mark.judge,  # each starts a server and a host: half a minute together
    pytest.mark.anyio,
    pytest.mark.requirement("I14-5-passed-through"),
]

WAIT_S = 30.0
OLDER = pytest.mark.parametrize("era", ["2025-11-25"])
NEWER = pytest.mark.parametrize("era", ["2026-07-28"])


class Person:
    """Answers each question in the same way, and remembers what was asked."""

    def __init__(self, action: str = "accept", **content: object) -> None:
        self.answer = ElicitResult.model_validate({"action": action, "content": content or None})
        self.asked: list[ElicitRequestFormParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params)
        return self.answer


class Absent:
    """Does not answer; `asked` is set when the question has arrived."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
async def url(served_at: str) -> str:
    """Where the host is, which has discovered the tools of the server."""
    async with discovered(served_at, "asking"):
        return served_at


@pytest.fixture
def served_at() -> Iterator[str]:
    """Where a host with the asking server is served."""
    entry = {
        "command": sys.executable,
        "args": ["-m", asking_server.__name__],
        "cwd": str(Path(__file__).parents[2]),
        "prefix": "desk",
        "tools": {"hurry": {"limits": {"timeout": "2s"}}},
    }
    whole = with_agents_of_keys({"store": "memory://", "auth": KEYS, "mcp_servers": {"asking": entry}})
    host = open_host(whole, environ={})
    with served(host, create_app(host)) as port:
        yield f"http://127.0.0.1:{port}"


async def said(client: Client, tool: str, **options: Any) -> str:
    return text_of(await client.call_tool(f"desk__{tool}", {}, **options))


@OLDER
async def test_the_user_of_the_caller_is_asked_and_the_server_gets_the_answer(opened: Opened) -> None:
    person = Person(seats=2)
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person) as client:
        assert await said(client, "book") == "accept: 2"
        assert await said(client, "offered") == '{"elicitation":{"form":{}}}'
    (asked,) = person.asked
    assert asked.message == 'The MCP server "asking" asks, for the tool "book":\n\nHow many seats?'
    assert asked.requested_schema["properties"]["seats"] == {
        "description": "How many seats?",
        "title": "Seats",
        "type": "integer",
    }


@OLDER
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_declines_or_cancels_does_so_to_the_server(opened: Opened, action: str) -> None:
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=Person(action)) as client:
        assert await said(client, "book") == action


@OLDER
async def test_sampling_and_pages_to_visit_are_refused_in_words(opened: Opened) -> None:
    person = Person()
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person) as client:
        assert "sampling is not offered: toolplug has no model" in await said(client, "think")
        assert "the user cannot be asked: only forms are passed on, and this is a URL" in await said(client, "visit")
    assert person.asked == []


@OLDER
async def test_a_client_without_elicitation_is_not_asked(opened: Opened) -> None:
    async with asyncio.timeout(WAIT_S), opened() as client:
        assert (
            "the user cannot be asked: the caller's client does not offer elicitation of forms, or reads no stream of"
            " events" in await said(client, "book")
        )


@NEWER
async def test_a_client_of_the_newer_era_is_told_that_it_cannot_be_asked(opened: Opened) -> None:
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=Person()) as client:
        assert (
            "the user cannot be asked: the caller's client speaks 2026-07-28, which is not asked while a call runs"
            in await said(client, "book")
        )


async def test_a_caller_of_the_rest_interface_is_told_that_only_mcp_clients_can_ask(url: str) -> None:
    async with AsyncClient(base_url=url, headers=ALICE, timeout=WAIT_S) as http:
        response = await http.post("/v1/tool-calls", json={"name": "desk.book"})
    assert "the user cannot be asked: its caller is not an MCP client, and only those can ask a user" in response.text


@OLDER
async def test_nobody_is_asked_while_two_calls_share_the_connection(opened: Opened) -> None:
    person, holding = Person(seats=2), asyncio.Event()

    async def heard(*_: object) -> None:
        holding.set()

    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person) as client:
        held = asyncio.create_task(said(client, "hold", progress_callback=heard))
        await holding.wait()
        assert "the user cannot be asked: 2 calls run over this connection" in await said(client, "book")
        await said(client, "release")
        assert await held == "held"
    assert person.asked == []


@OLDER
async def test_the_deadline_of_the_call_goes_on_and_later_questions_may_belong_to_that_call(opened: Opened) -> None:
    person = Absent()
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person) as client:
        await said(client, "release")  # the server has started
        assert "timed out after 2 s" in await said(client, "hurry")
        assert person.asked.is_set()
        assert (
            "the user cannot be asked: an earlier call ended without an answer, and the question may belong to it"
            in await said(client, "book")
        )
