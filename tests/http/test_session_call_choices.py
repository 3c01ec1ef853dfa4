"""What a call of the session's own route may choose as one of the host's may: its agent, and its approval."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import as_holder, client_of, settings
from tests.http.session_plugin import refusal

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

KEYS = {
    "api_keys": [
        {"key": "person-key", "subject": "person", "tenant": "t1", "scopes": ["approvals:write", "sessions:write"]},
        {"key": "model-key", "subject": "model", "tenant": "t1", "agents": ["asking", "free"]},
    ]
}
PERSON, MODEL = as_holder("person-key"), as_holder("model-key")
OTTERS = {"text": "otters"}
SECTIONS = {
    "auth": KEYS,
    "providers": {"sample": {"enabled": True, "tools": {"echo": "ask"}}},
    "toolsets": {
        "web": {"prefix": "web", "from": "provider:sample"},
        "own": {"prefix": "own", "from": "provider:sample"},
    },
    "agents": {"asking": {"toolsets": ["web"]}, "free": {"toolsets": ["own"]}},
}


@pytest.fixture
async def client(sample_package: None) -> AsyncIterator[AsyncClient]:
    async with open_host(settings(**SECTIONS), environ={}) as host, client_of(create_app(host)) as opened:
        yield opened


@pytest.fixture
async def place(client: AsyncClient) -> str:
    code = (await client.post("/api/sessions", headers=PERSON)).json()["code"]
    return f"/api/sessions/{code}/tool-calls"


async def called(client: AsyncClient, place: str, tool: str, agent: str, *, wait: bool, **more: object) -> Any:
    """The result of a call, which is waited for here or there."""
    body = {"tool": tool, "agent": agent, "wait": wait, **more}
    answer = await client.post(place, headers=MODEL, json=body)
    if wait:
        assert answer.status_code == 200, answer.text
        return answer.json()
    assert answer.status_code == 202, answer.text
    while True:
        state = (await client.get(f"{place}/{answer.json()['id']}", headers=MODEL)).json()
        if state["status"] == "done":
            return state["result"]
        await asyncio.sleep(0)


@pytest.mark.requirement("C-6-call", "C-6-call-no-wait", "C-5-agent-required")
@pytest.mark.parametrize("wait", [True, False])
async def test_a_credential_of_several_agents_names_the_one_that_calls(
    client: AsyncClient, place: str, wait: bool
) -> None:
    body = {"tool": "own.language", "wait": wait}
    assert refusal(await client.post(place, headers=MODEL, json=body)) == (400, "agent_required", "agent")
    other = await client.post(place, headers=MODEL, json={**body, "agent": "third"})
    assert refusal(other) == (403, "agent_not_allowed", "agent")
    assert (await called(client, place, "own.language", "free", wait=wait))["status"] == "success"
    assert (await called(client, place, "own.language", "asking", wait=wait))["status"] == "unknown_tool"


@pytest.mark.requirement("C-6-call", "C-6-call-no-wait", "C-3-policy-ask-decide", "C-3-policy-ask-bound")
@pytest.mark.parametrize("wait", [True, False])
async def test_an_approved_call_is_repeated_through_the_session(client: AsyncClient, place: str, wait: bool) -> None:
    refused = await called(client, place, "web.echo", "asking", wait=wait, arguments=OTTERS)
    ticket = refused["metadata"]["approval"]["id"]
    assert refused["status"] == "denied"
    decided = await client.post(f"/v1/approvals/{ticket}", headers=PERSON, json={"decision": "approve"})
    assert (decided.status_code, decided.json()["session"]) == (200, True)
    repeated = await called(client, place, "web.echo", "asking", wait=wait, arguments=OTTERS, approval=ticket)
    assert (repeated["status"], repeated["output"]) == ("success", "otters")
    again = await called(client, place, "web.echo", "asking", wait=wait, arguments=OTTERS, approval=ticket)
    assert "used already" in again["output"]
