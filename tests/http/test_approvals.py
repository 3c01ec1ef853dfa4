"""`/v1/approvals`: a call that a person must approve, by two principals over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import BOB, ROOT, as_holder, client_of, settings

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
        assert listed[0]["decided_at"] is None
        assert listed[0]["asked_at"] <= decided["decided_at"] < decided["expires_at"]
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


@pytest.mark.requirement("C-3-policy-ask-bound", "C-3-policy-ask-decide")
async def test_an_agents_call_is_approved_for_that_agent_alone(sample_package: None) -> None:
    toolsets = {"web": {"prefix": "web", "from": "provider:sample"}}
    agents = {"one": {"toolsets": ["web"]}, "two": {"toolsets": ["web"]}}
    whole = settings(providers=ASKING, auth=KEYS, toolsets=toolsets, agents=agents)
    async with open_host(whole) as host, client_of(create_app(host)) as client:
        body = {"name": "web.echo", "arguments": {"text": "otters"}, "agent": "one"}
        asked = (await client.post("/v1/tool-calls", headers=AGENT, json=body)).json()
        ticket = asked["metadata"]["approval"]["id"]
        listed = (await client.get("/v1/approvals", headers=PERSON)).json()["approvals"]
        assert [(item["tool"], item["agent"], item["session"]) for item in listed] == [("web.echo", "one", False)]
        await decide(client, ticket, "approve")
        for changed, status in (({"agent": "two"}, "denied"), ({}, "success"), ({}, "denied")):
            again = await client.post("/v1/tool-calls", headers=AGENT, json={**body, "approval": ticket, **changed})
            assert again.json()["status"] == status


@pytest.mark.requirement("C-3-policy-ask-bound")
async def test_a_call_in_a_session_is_approved_for_that_session(sample_package: None) -> None:
    async with open_host(settings(providers=ASKING, auth=KEYS)) as host, client_of(create_app(host)) as client:
        code = (await client.post("/api/sessions", headers=AGENT, json={})).json()["code"]
        body = {"name": "echo", "arguments": {"text": "otters"}, "session": code}
        asked = (await client.post("/v1/tool-calls", headers=AGENT, json=body)).json()
        ticket = asked["metadata"]["approval"]["id"]
        status, decided = await decide(client, ticket, "approve")
        assert (status, decided["session"]) == (200, True)
        for session, expected in ((None, "denied"), (code, "success")):
            again = {**body, "approval": ticket, "session": session}
            answer = await client.post("/v1/tool-calls", headers=AGENT, json=again)
            assert answer.json()["status"] == expected


@pytest.mark.requirement("C-1-canonical-name")
async def test_a_call_by_its_wire_name_is_listed_and_audited_by_its_canonical_one(
    sample_package: None, caplog: pytest.LogCaptureFixture
) -> None:
    """As models call it; the text for the model has the name that it knows."""
    caplog.set_level(logging.INFO, "toolplug.audit")
    toolsets = {"web": {"prefix": "web", "from": "provider:sample"}}
    tools = {"echo": {"policy": "ask", "grants": {"most": "1h", "scope": "caller"}}, "fails": "deny"}
    providers = {"sample": {"enabled": True, "tools": tools}}
    whole = settings(providers=providers, auth=KEYS, toolsets=toolsets, agents={"one": {"toolsets": ["web"]}})
    async with open_host(whole) as host, client_of(create_app(host)) as client:
        body = {"name": "web__echo", "arguments": {"text": "otters"}, "agent": "one"}
        asked = (await client.post("/v1/tool-calls", headers=AGENT, json=body)).json()
        approval = asked["metadata"]["approval"]
        assert (approval["tool"], asked["output"][:24]) == ("web.echo", 'tool "web__echo" is not ')
        listed = (await client.get("/v1/approvals", headers=PERSON)).json()["approvals"]
        assert [item["tool"] for item in listed] == ["web.echo"]
        terms = {"decision": "approve", "grant": {"for": "1h", "scope": "caller"}}
        made = await client.post(f"/v1/approvals/{approval['id']}", headers=PERSON, json=terms)
        assert made.status_code == 200, made.text
        grants = await client.get("/v1/grants", params={"tool": "web.echo"}, headers=PERSON)
        assert [grant["tool"] for grant in grants.json()["grants"]] == ["web.echo"]
        await client.post("/v1/tool-calls", headers=AGENT, json={"name": "web__fails", "arguments": {}, "agent": "one"})
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "toolplug.audit"]
    assert [line["target"] for line in lines if line["event"] == "tool.call"] == ["web.echo", "web.fails"]


@pytest.mark.requirement("C-3-policy-ask-decide", "H-trust-audit-agrees")
async def test_every_decision_is_audited_with_who_made_it(
    sample_package: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolplug.audit")
    async with open_host(settings(providers=ASKING, auth=KEYS)) as host, client_of(create_app(host)) as client:
        ticket = (await call(client, "otters"))["metadata"]["approval"]["id"]
        await decide(client, ticket, "deny")
        await decide(client, ticket, "approve")
        await decide(client, ticket, "approve", STRANGER)
        denied = (await call(client, "otters", ticket))["output"]
        assert denied == 'tool "echo" is not allowed: approval: it was denied by person'
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "toolplug.audit"]
    told = [(line["event"], line["outcome"], line["principal"], line["target"]) for line in lines]
    assert told == [
        ("tool.call", "denied", "agent", "echo"),
        ("approval.deny", "done", "person", f"approval:{ticket}"),
        ("approval.approve", "approval_decided", "person", "approval"),
        ("approval.approve", "approval_not_found", "stranger", "approval"),
        ("tool.call", "denied", "agent", "echo"),
    ]
    assert "otters" not in caplog.text


@pytest.mark.requirement("C-3-policy-ask-bound")
async def test_of_two_who_decide_and_of_two_who_repeat_at_once_one_does(sample_package: None) -> None:
    async with open_host(settings(providers=ASKING, auth=KEYS)) as host, client_of(create_app(host)) as client:
        ticket = (await call(client, "otters"))["metadata"]["approval"]["id"]
        decided = await asyncio.gather(*(decide(client, ticket, "approve") for _ in range(4)))
        assert sorted(status for status, _ in decided) == [200, 409, 409, 409]
        repeated = await asyncio.gather(*(call(client, "otters", ticket) for _ in range(4)))
        assert sorted(result["status"] for result in repeated) == ["denied", "denied", "denied", "success"]


@pytest.mark.requirement("C-10-approvals-all")
async def test_an_admin_lists_and_decides_the_approvals_of_every_tenant(sample_package: None) -> None:
    root = {"key": "root-key", "subject": "root", "scopes": ["admin", "operator"]}
    bob = {"key": "bob-key", "subject": "bob", "tenant": "t2"}
    asking = {"sample": {"enabled": True, "tools": {"whoami": "ask"}}}
    given = settings(providers=asking, auth={"api_keys": [*KEYS["api_keys"], root, bob]})
    async with open_host(given, environ={}) as host, client_of(create_app(host)) as client:
        for who in (AGENT, BOB):
            await client.post("/v1/tool-calls", headers=who, json={"name": "whoami"})
        refused = await client.get("/v1/approvals?tenants=all", headers=PERSON)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
        assert (await client.get("/v1/approvals?tenants=some", headers=ROOT)).status_code == 400
        listed = (await client.get("/v1/approvals?tenants=all", headers=ROOT)).json()["approvals"]
        assert [item["tenant"] for item in listed] == ["t1", "t2"]
        path = f"/v1/approvals/{listed[1]['id']}"
        assert (await client.post(path, headers=ROOT, json={"decision": "deny"})).status_code == 404
        assert (await client.post(f"{path}?tenant=t2", headers=PERSON, json={"decision": "deny"})).status_code == 403
        decided = await client.post(f"{path}?tenant=t2", headers=ROOT, json={"decision": "deny"})
        assert (decided.json()["state"], decided.json()["decided_by"]) == ("denied", "root")
