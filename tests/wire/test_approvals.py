"""Calls that wait for a person: asked, shown, decided and made at whichever process."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from tests.wire.answers import call, error_of
from tests.wire.callers import new_name

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]


async def ticket_of(client: httpx2.AsyncClient, name: str) -> str:
    """Ask for a call, and get the id of its approval."""
    asked = await call(client, "first", name=name)
    assert asked["status"] == "denied"
    return asked["metadata"]["approval"]["id"]


async def test_an_approval_is_seen_decided_and_used_anywhere(
    client: httpx2.AsyncClient, judge: httpx2.AsyncClient, stranger: httpx2.AsyncClient
) -> None:
    for number in range(3):
        name = new_name("approved")
        ticket = await ticket_of(client, name)
        for _ in range(3):
            shown = {each["id"]: each for each in (await client.get("/v1/approvals")).json()["approvals"]}
            assert (shown[ticket]["tool"], shown[ticket]["arguments"]) == ("first", {"name": name})
            assert ticket not in (await stranger.get("/v1/approvals")).text
        refused = await stranger.post(f"/v1/approvals/{ticket}", json={"decision": "approve"})
        assert refused.status_code == 404
        decided = await judge.post(f"/v1/approvals/{ticket}", json={"decision": "approve"})
        assert decided.status_code == 200
        body: dict[str, Any] = {"name": "first", "arguments": {"name": name}}
        named = {**body, "approval": ticket} if number else body
        answers = [(await client.post("/v1/tool-calls", json=named)).json() for _ in range(4)]
        assert [answer["status"] for answer in answers] == ["success"] + ["denied"] * 3
        assert answers[0]["output"] == "1"


async def test_who_asked_does_not_decide(client: httpx2.AsyncClient, judge: httpx2.AsyncClient) -> None:
    ticket = await ticket_of(client, new_name("own"))
    for _ in range(3):
        own = await client.post(f"/v1/approvals/{ticket}", json={"decision": "approve"})
        assert error_of(own) == (403, "own_call")
    assert (await judge.post(f"/v1/approvals/{ticket}", json={"decision": "approve"})).status_code == 200


async def test_an_approval_is_used_once(client: httpx2.AsyncClient, judge: httpx2.AsyncClient) -> None:
    name = new_name("once")
    ticket = await ticket_of(client, name)
    await judge.post(f"/v1/approvals/{ticket}", json={"decision": "approve"})
    body = {"name": "first", "arguments": {"name": name}, "approval": ticket}
    answers = await asyncio.gather(*(client.post("/v1/tool-calls", json=body) for _ in range(8)))
    assert sorted(answer.json()["status"] for answer in answers) == ["denied"] * 7 + ["success"]
    assert (await call(client, "times", name=name))["output"] == "2"


async def test_an_approval_is_for_these_arguments(client: httpx2.AsyncClient, judge: httpx2.AsyncClient) -> None:
    ticket = await ticket_of(client, new_name("mine"))
    await judge.post(f"/v1/approvals/{ticket}", json={"decision": "approve"})
    body = {"name": "first", "arguments": {"name": new_name("other")}, "approval": ticket}
    for _ in range(3):
        assert (await client.post("/v1/tool-calls", json=body)).json()["status"] == "denied"


async def test_a_denied_call_does_not_run(client: httpx2.AsyncClient, judge: httpx2.AsyncClient) -> None:
    name = new_name("denied")
    ticket = await ticket_of(client, name)
    await judge.post(f"/v1/approvals/{ticket}", json={"decision": "deny"})
    body = {"name": "first", "arguments": {"name": name}, "approval": ticket}
    for _ in range(3):
        assert (await client.post("/v1/tool-calls", json=body)).json()["status"] == "denied"
    assert (await call(client, "times", name=name))["output"] == "1"


async def test_a_ticket_is_decided_once(client: httpx2.AsyncClient, judge: httpx2.AsyncClient) -> None:
    ticket = await ticket_of(client, new_name("twice"))
    decisions = ["approve", "deny"] * 3
    answers = await asyncio.gather(
        *(judge.post(f"/v1/approvals/{ticket}", json={"decision": decision}) for decision in decisions)
    )
    assert [answer.status_code for answer in answers].count(200) >= 1
    shown = {each["id"]: each for each in (await client.get("/v1/approvals")).json()["approvals"]}
    taken = {answer.json()["state"] for answer in answers if answer.status_code == 200}
    assert len(taken) == 1
    assert ticket not in shown or shown[ticket]["state"] in taken


@pytest.mark.parametrize("body", [{}, {"decision": "maybe"}, {"decision": "approve", "x": 1}])
async def test_a_wrong_decision_is_refused(
    client: httpx2.AsyncClient, judge: httpx2.AsyncClient, body: dict[str, object]
) -> None:
    ticket = await ticket_of(client, new_name("wrong"))
    assert error_of(await judge.post(f"/v1/approvals/{ticket}", json=body)) == (400, "invalid_request")


async def test_an_unknown_ticket_is_not_found(judge: httpx2.AsyncClient) -> None:
    assert (await judge.post("/v1/approvals/apr_none", json={"decision": "deny"})).status_code == 404
