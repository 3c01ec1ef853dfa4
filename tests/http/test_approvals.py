"""`/v1/approvals`: a call that a person must approve, by two principals over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import as_holder, client_of, settings

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

KEYS = {
    "api_keys": [
        {"key": "agent-key", "subject": "agent", "tenant": "t1"},
        {"key": "person-key", "subject": "person", "tenant": "t1", "scopes": ["approvals:write"]},
        {"key": "stranger-key", "subject": "stranger", "tenant": "t2", "scopes": ["approvals:write"]},
    ]
}
AGENT, PERSON, STRANGER = as_holder("agent-key"), as_holder("person-key"), as_holder("stranger-key")
ASKING = {"sample": {"enabled": True, "tools": {"echo": "ask"}}}


async def call(client: AsyncClient, text: str, approval: str | None = None) -> dict[str, Any]:
    body = {"id": "c1", "name": "echo", "arguments": {"text": text}, "approval": approval}
    answer = await client.post("/v1/tool-calls", headers=AGENT, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def decide(client: AsyncClient, ticket: str, decision: str, who: dict[str, str] = PERSON) -> tuple[int, Any]:
    answer = await client.post(f"/v1/approvals/{ticket}", headers=who, json={"decision": decision})
    return answer.status_code, answer.json()


@pytest.mark.requirement("C-3-policy-ask", "C-3-policy-ask-decide", "ROUTE-OQ-approval")
async def test_one_principal_calls_another_approves_and_the_first_repeats(sample_package: None) -> None:
    async with open_host(settings(providers=ASKING, auth=KEYS)) as host, client_of(create_app(host)) as client:
        refused = await call(client, "otters")
        ticket = refused["metadata"]["approval"]["id"]
        assert (refused["status"], refused["is_error"]) == ("denied", True)
        listed = (await client.get("/v1/approvals", headers=PERSON)).json()["approvals"]
        assert [(item["id"], item["state"], item["arguments"], item["subject"]) for item in listed] == [
            (ticket, "waiting", {"text": "otters"}, "agent")
        ]
        status, decided = await decide(client, ticket, "approve")
        assert (status, decided["state"], decided["decided_by"]) == (200, "approved", "person")
        assert (await call(client, "owls", ticket))["status"] == "denied"
        assert (await call(client, "otters", ticket))["output"] == "otters"
        assert "used already" in (await call(client, "otters", ticket))["output"]
        status, problem = await decide(client, ticket, "deny")
        assert (status, problem["error"]["code"]) == (409, "approval_decided")


@pytest.mark.requirement("C-5-scope-approvals")
async def test_deciding_needs_the_scope_and_the_tenant(sample_package: None) -> None:
    async with open_host(settings(providers=ASKING, auth=KEYS)) as host, client_of(create_app(host)) as client:
        ticket = (await call(client, "otters"))["metadata"]["approval"]["id"]
        status, problem = await decide(client, ticket, "approve", AGENT)
        assert (status, problem["error"]["code"]) == (403, "insufficient_scope")
        status, problem = await decide(client, ticket, "approve", STRANGER)
        assert (status, problem["error"]["code"]) == (404, "approval_not_found")
        assert (await client.get("/v1/approvals", headers=STRANGER)).json() == {"approvals": []}
        assert (await client.get("/v1/approvals", headers=AGENT)).status_code == 403
        assert (await decide(client, "nonsense", "approve"))[0] == 404
        assert (await decide(client, ticket, "maybe"))[0] == 400
        assert (await call(client, "otters", ticket))["status"] == "denied"


@pytest.mark.requirement("C-3-policy-ask-bound")
async def test_a_retry_under_the_same_key_gets_the_first_result_of_an_approved_call(sample_package: None) -> None:
    async with open_host(settings(providers=ASKING, auth=KEYS)) as host, client_of(create_app(host)) as client:
        ticket = (await call(client, "otters"))["metadata"]["approval"]["id"]
        await decide(client, ticket, "approve")
        body = {"id": "c1", "name": "echo", "arguments": {"text": "otters"}, "approval": ticket}
        sent = AGENT | {"Idempotency-Key": "k1"}
        first = await client.post("/v1/tool-calls", headers=sent, json=body)
        again = await client.post("/v1/tool-calls", headers=sent, json=body)
        other = await client.post("/v1/tool-calls", headers=AGENT | {"Idempotency-Key": "k2"}, json=body)
        assert (first.json()["output"], again.json()) == ("otters", first.json())
        assert again.headers["Idempotent-Replayed"] == "true"
        assert other.json()["status"] == "denied"
