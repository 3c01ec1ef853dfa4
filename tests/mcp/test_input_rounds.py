"""What a server of 2026-07-28 behind a host asks before it answers a call, through to the user of the caller."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from httpx2 import Client as HttpClient
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, InputRequiredResult
from tests.http.conftest import ALICE, KEYS, ROOT, with_agents_of_keys
from tests.http.served import served
from tests.mcp.conftest import Opened
from tests.mcp.servers import rounds_server
from tests.mcp.test_passed_questions import NEWER, WAIT_S, Person
from tests.mcp.test_passed_through import refusal
from tests.mcp.test_tools import text_of

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.mcp, pytest.mark.anyio, pytest.mark.requirement("I14-5-passed-through")]

ANSWER = ElicitResult.model_validate({"action": "accept", "content": {"seats": 2}})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a host is served that has discovered the tools of the server, and started it."""
    entry = {
        "command": sys.executable,
        "args": ["-m", rounds_server.__name__],
        "cwd": str(Path(__file__).parents[2]),
        "prefix": "desk",
        "tools": {"approved": {"policy": {"ask": "caller"}}},
    }
    whole = with_agents_of_keys({"store": "memory://", "auth": KEYS, "mcp_servers": {"rounds": entry}})
    host = open_host(whole, environ={})
    with (
        served(host, create_app(host)) as port,
        HttpClient(base_url=f"http://127.0.0.1:{port}", headers=ROOT, timeout=2 * WAIT_S) as http,
    ):
        assert http.post("/api/mcp-servers/rounds/discover?wait=30s").json()["status"] == "success"
        assert http.post("/v1/tool-calls", json={"name": "desk.offered"}).json()["status"] == "success"
        yield f"http://127.0.0.1:{port}"


async def said(client: Client, tool: str, **arguments: object) -> str:
    return text_of(await client.call_tool(f"desk__{tool}", arguments))


async def asked(client: Client, tool: str = "book", **arguments: object) -> InputRequiredResult:
    """The questions with which a call ends; the client's own driver does not run."""
    result = await client.session.call_tool(f"desk__{tool}", arguments, allow_input_required=True)
    assert isinstance(result, InputRequiredResult)
    return result


async def repeated(client: Client, state: str | None, tool: str = "book", **arguments: object) -> Any:
    return await client.session.call_tool(
        f"desk__{tool}",
        arguments,
        input_responses={"question-1": ANSWER},
        request_state=state,
        allow_input_required=True,
    )


def accepted(**answers: object) -> dict[str, object]:
    return {key: {"meta": None, "action": "accept", "content": value} for key, value in answers.items()}


async def test_the_user_of_the_caller_is_asked_and_the_server_gets_answer_and_state(opened: Opened) -> None:
    person = Person(seats=2)
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person) as client:
        brought = json.loads(await said(client, "book", what="boat"))
        assert "form" in await said(client, "offered")
    assert brought == ["first boat", accepted(one={"seats": 2})]
    (question,) = person.asked
    assert question.message == 'The MCP server "rounds" asks, for the tool "book":\n\nHow many seats?'
    assert question.requested_schema["properties"]["seats"]["description"] == "How many seats?"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_declines_or_cancels_does_so_to_the_server(opened: Opened, action: str) -> None:
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=Person(action)) as client:
        brought = json.loads(await said(client, "book"))
    assert brought[1] == {"one": {"meta": None, "action": action, "content": None}}


async def test_a_server_may_ask_again_and_several_things_at_once_or_only_want_a_later_call(opened: Opened) -> None:
    person = Person(seats=2)
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person) as client:
        assert json.loads(await said(client, "twice")) == ["second", accepted(two={"seats": 2}, three={"seats": 2})]
        assert json.loads(await said(client, "later")) == ["soon", {}]
    assert [question.message.rpartition("\n")[2] for question in person.asked] == ["How many seats?", "Where?", "When?"]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("think", "sampling is not offered: toolplug has no model"),
        ("visit", "only forms are passed on, and this is a URL"),
        ("many", "it asks 9 questions at once, 8 are allowed"),
        ("bad", "its requestState has more than 65536 bytes"),
    ],
)
async def test_what_cannot_be_passed_on_is_refused_in_words(opened: Opened, tool: str, words: str) -> None:
    person = Person()
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person) as client:
        assert f"its server asks something before it answers, and the user cannot be asked: {words}" in await said(
            client, tool
        )
    assert person.asked == []


async def test_a_server_that_does_not_stop_asking_is_stopped(opened: Opened) -> None:
    person = Person(seats=1)
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person, input_required_max_rounds=20) as client:
        assert "the user cannot be asked: it has asked 10 times already" in await said(client, "endless")
    assert len(person.asked) == 10


async def test_a_client_that_cannot_ask_is_not_offered_to_the_server_and_its_call_is_refused(opened: Opened) -> None:
    async with asyncio.timeout(WAIT_S), opened() as client:
        assert await said(client, "offered") == "{}"
        assert "the user cannot be asked: the caller's client does not offer elicitation of forms" in await said(
            client, "book"
        )


async def test_a_caller_of_the_rest_interface_is_told_that_only_mcp_clients_can_ask(url: str) -> None:
    async with AsyncClient(base_url=url, headers=ALICE, timeout=WAIT_S) as http:
        response = await http.post("/v1/tool-calls", json={"name": "desk.book"})
    assert "the user cannot be asked: its caller is not an MCP client, and only those can ask a user" in response.text


async def test_prompts_and_resources_that_ask_are_refused_in_words(opened: Opened) -> None:
    words = "only calls of tools can ask, and this is a request for a prompt, a resource or a completion"
    person = Person()
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person) as client:
        for request in (client.get_prompt("desk.ask"), client.read_resource("ask://it")):
            code, message = await refusal(request)
            assert (code, words in message) == (-32603, True)
    assert person.asked == []


@NEWER
async def test_a_request_state_is_good_for_one_repetition_of_one_call_of_one_caller(opened: Opened) -> None:
    person = Person()
    async with (
        asyncio.timeout(WAIT_S),
        opened(elicitation_callback=person) as alice,
        opened(key="root-key", elicitation_callback=person) as root,
    ):
        state = (await asked(alice, what="boat")).request_state
        assert state is not None
        for other in (
            repeated(root, state, what="boat"),
            repeated(alice, state, what="car"),
            repeated(alice, state, tool="twice", what="boat"),
            repeated(alice, f"{state}0", what="boat"),
        ):
            with pytest.raises(MCPError, match="this requestState is unknown, has expired or been used"):
                await other
        assert json.loads(text_of(await repeated(alice, state, what="boat")))[0] == "first boat"
        with pytest.raises(MCPError, match="this requestState is unknown, has expired or been used"):
            await repeated(alice, state, what="boat")


@NEWER
async def test_the_server_decides_about_an_answer_that_is_missing(opened: Opened) -> None:
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=Person()) as client:
        state = (await asked(client)).request_state
        result = await client.session.call_tool("desk__book", {}, request_state=state)
    assert json.loads(text_of(result)) == ["first ", {}]


@NEWER
async def test_a_call_that_needed_an_approval_cannot_ask_in_rounds(opened: Opened) -> None:
    person = Person()
    async with asyncio.timeout(WAIT_S), opened(elicitation_callback=person) as client:
        assert "the user cannot be asked: the call needs an approval" in await said(client, "approved")
    assert [question.message.splitlines()[0] for question in person.asked] == [
        'Run the tool "desk.approved" with these arguments?'
    ]
