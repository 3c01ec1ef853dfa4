"""Calls that a person must approve, asked through the client that makes them."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest
from httpx2 import AsyncClient
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitRequestParams, ElicitResult
from tests.mcp.conftest import ERAS, Opened, settings
from tests.mcp.test_tools import WAIT_S, text_of

from toolplug.parts.mcp.sdk import elicitation

pytestmark = [pytest.mark.requirement("C-3-policy-ask-caller"), pytest.mark.mcp, pytest.mark.anyio]

TOOLPLUG = str(Path(sys.executable).with_name("toolplug"))
ASKING = settings(providers={"speaking": {"enabled": True, "tools": {"say": "ask"}}})
CALLER = settings(providers={"speaking": {"enabled": True, "tools": {"say": {"ask": "caller"}}}})


SCRIPTS = settings(
    providers={
        "speaking": {"enabled": True, "tools": {"say": "ask"}},
        "code": {"enabled": True, "type": "code_mode"},
    }
)
SCRIPT = "[await say(text=text) for text in ('a', 'b', 'c')]"


class Person:
    """Answers each question in the same way, and remembers what was asked."""

    def __init__(self, action: str = "accept", choice: str | None = None) -> None:
        self.action = action
        self.content = None if choice is None else {"decision": choice}
        self.asked: list[str] = []
        self.forms: list[object] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        self.forms.append(getattr(params, "requested_schema", None))
        return ElicitResult.model_validate({"action": self.action, "content": self.content})


@pytest.fixture
def decisions(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The audit lines of decisions so far, when called."""
    caplog.set_level(logging.INFO, "toolplug.audit")

    def lines() -> list[dict[str, object]]:
        found = [json.loads(item.getMessage()) for item in caplog.records if item.name == "toolplug.audit"]
        return [line for line in found if line["event"].startswith("approval.")]

    return lines


@pytest.mark.parametrize("configured", [ASKING])
async def test_a_caller_who_may_decide_is_asked_through_the_client(opened: Opened, decisions) -> None:
    person = Person()
    async with asyncio.timeout(WAIT_S), opened(key="root-key", elicitation_callback=person) as client:
        said = await client.call_tool("say", {"text": "hello"})
    assert (text_of(said), said.is_error) == ("hello", False)
    assert person.asked == ['Run the tool "say" with these arguments?\n\n{"text": "hello"}']
    (line,) = decisions()
    assert (line["event"], line["outcome"], line["decided"], line["principal"]) == (
        "approval.approve",
        "done",
        "elicitation",
        "root",
    )


@pytest.mark.requirement("I37-ways")
@pytest.mark.parametrize("configured", [SCRIPTS])
async def test_a_script_asks_as_often_as_it_must(opened: Opened) -> None:
    person = Person()
    async with asyncio.timeout(2 * WAIT_S), opened(key="root-key", elicitation_callback=person) as client:
        said = await client.call_tool("run_code", {"code": SCRIPT})
    assert json.loads(text_of(said)) == {"result": ["a", "b", "c"]}
    asked = [f'Run the tool "say" with these arguments?\n\n{{"text": "{text}"}}' for text in "abc"]
    assert person.asked == asked
    dismisses = Person("cancel")
    async with asyncio.timeout(2 * WAIT_S), opened(key="root-key", elicitation_callback=dismisses) as client:
        dismissed = await client.call_tool("run_code", {"code": SCRIPT})
    assert (dismissed.is_error, dismisses.asked) == (True, asked[:1])


@pytest.mark.parametrize("configured", [ASKING])
async def test_a_person_who_declines_denies_the_call_and_one_who_dismisses_leaves_it_open(
    opened: Opened, decisions
) -> None:
    async with asyncio.timeout(WAIT_S), opened(key="root-key", elicitation_callback=Person("decline")) as client:
        declined = await client.call_tool("say", {"text": "hello"})
    assert (text_of(declined), declined.is_error) == (
        'tool "say" is not allowed: approval: it was denied by root',
        True,
    )
    async with asyncio.timeout(WAIT_S), opened(key="root-key", elicitation_callback=Person("cancel")) as client:
        dismissed = await client.call_tool("say", {"text": "hello"})
    assert dismissed.is_error
    assert dismissed.meta is not None
    assert "approval" in dismissed.meta["toolplug/metadata"]
    assert [line["event"] for line in decisions()] == ["approval.deny"]


@pytest.mark.parametrize("configured", [ASKING])
async def test_a_caller_who_may_not_decide_is_not_asked(opened: Opened) -> None:
    person = Person()
    async with asyncio.timeout(WAIT_S), opened(key="alice-key", elicitation_callback=person) as client:
        refused = await client.call_tool("say", {"text": "hello"})
    assert refused.is_error
    assert person.asked == []


@pytest.mark.parametrize("configured", [CALLER])
async def test_under_ask_caller_any_caller_is_asked(opened: Opened) -> None:
    person = Person()
    async with asyncio.timeout(WAIT_S), opened(key="alice-key", elicitation_callback=person) as client:
        assert text_of(await client.call_tool("say", {"text": "hello"})) == "hello"
    assert len(person.asked) == 1


@pytest.mark.parametrize("configured", [ASKING])
async def test_a_client_that_cannot_ask_gets_the_ticket(opened: Opened) -> None:
    async with asyncio.timeout(WAIT_S), opened(key="root-key") as client:
        refused = await client.call_tool("say", {"text": "hello"})
    assert refused.is_error
    assert refused.meta is not None
    assert set(refused.meta["toolplug/metadata"]["approval"]) == {"id", "expires_at", "tool", "digest"}


@pytest.mark.parametrize("configured", [ASKING])
async def test_characters_that_nobody_can_see_are_shown_as_escapes(opened: Opened) -> None:
    person = Person()
    async with asyncio.timeout(WAIT_S), opened(key="root-key", elicitation_callback=person) as client:
        await client.call_tool("say", {"text": "a\u202eb"})
        await client.call_tool("say", {"text": "x" * 20_000})  # too long to be shown: not asked
    assert person.asked == ['Run the tool "say" with these arguments?\n\n{"text": "a\\u202eb"}']


async def test_over_stdio_the_operator_is_asked(tmp_path: Path, era: str) -> None:
    config = tmp_path / "providers.yaml"
    config.write_text("providers: {hello: {enabled: true, tools: {hello: ask}}}\nstore: memory://\n")
    server = StdioServerParameters(command=TOOLPLUG, args=["serve", "--stdio", "-c", str(config)])
    person = Person()
    async with (
        asyncio.timeout(WAIT_S),
        Client(stdio_client(server), mode=ERAS[era], elicitation_callback=person) as client,
    ):
        assert text_of(await client.call_tool("hello", {"name": "World"})) == "Hello, World!"
    assert person.asked == ['Run the tool "hello" with these arguments?\n\n{"name": "World"}']


def grants(policy: object = "ask", **rule: object) -> dict[str, object]:
    return settings(providers={"speaking": {"enabled": True, "tools": {"say": {"policy": policy, "grants": rule}}}})


async def session_of(url: str) -> str:
    """The endpoint of a new session of Root's."""
    async with AsyncClient(base_url=url, headers={"X-API-Key": "root-key"}) as http:
        return f"/api/sessions/{(await http.post('/api/sessions')).json()['code']}/mcp"


@pytest.mark.requirement("I35-mcp")
@pytest.mark.parametrize("configured", [grants(most="8h", any=True)])
async def test_one_answer_for_a_session_allows_fifty_like_calls_of_it_and_of_no_other(
    opened: Opened, url: str, decisions
) -> None:
    person = Person(choice="this session")
    path, other = await session_of(url), await session_of(url)
    async with asyncio.timeout(WAIT_S), opened(path, "root-key", elicitation_callback=person) as client:
        for number in range(50):
            assert text_of(await client.call_tool("say", {"text": f"{number}"})) == f"{number}"
        (form,) = person.forms
        assert form["properties"]["decision"]["enum"] == ["once", "this session", "deny"]  # type: ignore[index]
        assert person.asked[0].endswith('"this session" also allows every call of this tool in this session, for 8h.')
        assert len([line for line in decisions() if "grant" in line]) == 1
    dismissing = Person("cancel")
    async with asyncio.timeout(WAIT_S), opened(other, "root-key", elicitation_callback=dismissing) as client:
        assert (await client.call_tool("say", {"text": "7"})).is_error
    assert len(dismissing.asked) == 1


@pytest.mark.requirement("I35-mcp")
@pytest.mark.parametrize("configured", [grants(most="8h")])
@pytest.mark.parametrize(("choice", "asked"), [("once", 4), ("deny", 4), ("this session", 3), (None, 4)])
async def test_once_holds_once_and_a_session_for_equal_calls(
    opened: Opened, url: str, choice: str | None, asked: int
) -> None:
    person = Person(choice=choice)
    async with (
        asyncio.timeout(WAIT_S),
        opened(await session_of(url), "root-key", elicitation_callback=person) as client,
    ):
        said = [await client.call_tool("say", {"text": text}) for text in ("a", "a", "b", "c")]
    assert [item.is_error for item in said] == [choice == "deny"] * 4
    assert len(person.asked) == asked


@pytest.mark.requirement("I35-mcp")
@pytest.mark.parametrize("configured", [grants(most="8h", any=True)])
async def test_without_a_session_the_question_offers_none(opened: Opened) -> None:
    person = Person(choice="this session")
    async with asyncio.timeout(WAIT_S), opened(key="root-key", elicitation_callback=person) as client:
        assert not (await client.call_tool("say", {"text": "a"})).is_error
        await client.call_tool("say", {"text": "a"})
    assert (len(person.asked), person.forms[0]["properties"]) == (2, {})  # type: ignore[index]


@pytest.mark.requirement("I35-mcp")
@pytest.mark.parametrize("configured", [grants(most="8h", any=True, policy={"ask": "caller"})])
async def test_a_caller_that_decides_its_own_calls_is_offered_no_grant(opened: Opened, url: str) -> None:
    person = Person(choice="this session")
    path = await session_of(url)
    async with asyncio.timeout(WAIT_S), opened(path, "root-key", elicitation_callback=person) as client:
        for text in ("a", "a"):
            assert not (await client.call_tool("say", {"text": text})).is_error
    assert (len(person.asked), person.forms[0]["properties"]) == (2, {})  # type: ignore[index]


@pytest.mark.requirement("I35-mcp")
@pytest.mark.parametrize("era", ["2025-11-25"])  # the other one holds none
@pytest.mark.parametrize(
    "configured", [settings(providers=ASKING["providers"], approvals={"life": "8h"}, limits={"timeout": "10m"})]
)
async def test_a_question_holds_the_stream_no_longer_than_five_minutes_and_waits_on(
    opened: Opened, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert elicitation.LIFE_S == 300
    monkeypatch.setattr(elicitation, "LIFE_S", 0.2)

    async def nobody(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        await asyncio.sleep(3600)
        return ElicitResult(action="accept")

    async with asyncio.timeout(WAIT_S), opened(key="root-key", elicitation_callback=nobody) as client:
        assert (await client.call_tool("say", {"text": "hello"})).is_error
    async with AsyncClient(base_url=url, headers={"X-API-Key": "root-key"}) as http:
        (waiting,) = (await http.get("/v1/approvals")).json()["approvals"]
    assert waiting["state"] == "waiting"


@pytest.mark.requirement("C-5-own-call")
@pytest.mark.parametrize("configured", [ASKING])
async def test_a_client_decides_no_call_that_it_made_elsewhere(url: str) -> None:
    headers = {"X-API-Key": "root-key"}
    async with AsyncClient(base_url=url, headers=headers, timeout=WAIT_S) as http:
        body = {"name": "say", "arguments": {"text": "hello"}}
        ticket = (await http.post("/v1/tool-calls", json=body)).json()["metadata"]["approval"]["id"]
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "forger", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        }
        answer = {"requestState": ticket, "inputResponses": {"approval": {"action": "accept"}}, "_meta": meta}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**body, **answer}}
        modern = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "say"}
        modern["Accept"] = "application/json, text/event-stream"
        called = await http.post("/mcp", json=request, headers=modern)
        assert called.status_code == 200, called.text
        assert "no decision yet" in called.text
        (waiting,) = (await http.get("/v1/approvals")).json()["approvals"]
        assert (waiting["id"], waiting["state"]) == (ticket, "waiting")
