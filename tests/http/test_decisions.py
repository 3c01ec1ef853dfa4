"""Who decides: never the credential that asked; without `auth`, who has the host's decision key."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from httpx2 import AsyncClient, Response
from tests.http.conftest import as_holder, client_of, settings
from tests.http.test_jwt import SECTION, bearing, token

from toolplug import Host, Principal, ToolCall, open_host
from toolplug.catalog.exact_json import as_object
from toolplug.host.keys import HEADER as DECISION_KEY
from toolplug.host.keys import DecisionKey
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-own-call")]

SCOPES = ["tools:read", "tools:call", "sessions:write", "approvals:write"]
AUTH = {
    "api_keys": [
        {"key": "one-key", "subject": "ann", "scopes": SCOPES},
        {"key": "other-key", "subject": "ann", "scopes": SCOPES},
        {"key": "admin-key", "subject": "root", "scopes": ["admin", "operator"]},
    ],
    "jwt": SECTION,
}
ONE, OTHER, ADMIN = as_holder("one-key"), as_holder("other-key"), as_holder("admin-key")
ASKING = {"sample": {"enabled": True, "tools": {"echo": "ask", "whoami": {"ask": "caller"}}}}


@asynccontextmanager
async def served(**sections: object) -> AsyncIterator[tuple[Host, AsyncClient]]:
    whole = settings(**{"providers": ASKING, "auth": AUTH, **sections})
    async with open_host(whole, environ={}) as host, client_of(create_app(host)) as client:
        yield host, client


async def asked(client: AsyncClient, who: dict[str, str], name: str = "echo") -> str:
    body = {"name": name, "arguments": {"text": "otters"} if name == "echo" else {}}
    answer = (await client.post("/v1/tool-calls", headers=who, json=body)).json()
    assert answer["status"] == "denied", answer
    return answer["metadata"]["approval"]["id"]


async def decide(client: AsyncClient, ticket: str, who: dict[str, str], decision: str = "approve") -> Response:
    return await client.post(f"/v1/approvals/{ticket}", headers=who, json={"decision": decision})


def refusal(answer: Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize(
    ("asker", "decider", "status"),
    [
        (ONE, ONE, 403),
        (ONE, {"Authorization": "Bearer one-key"}, 403),
        (ADMIN, ADMIN, 403),
        (ONE, OTHER, 200),
        (ONE, ADMIN, 200),
    ],
    ids=["the same key", "in another header", "an admin's", "another key of the subject", "an admin"],
)
async def test_a_key_does_not_decide_its_own_call(
    sample_package: None, asker: dict[str, str], decider: dict[str, str], status: int, decision: str
) -> None:
    async with served() as (_, client):
        ticket = await asked(client, asker)
        answer = await decide(client, ticket, decider, decision)
        assert answer.status_code == status, answer.text
        if status == 403:
            assert refusal(answer) == (403, "own_call")
            assert "another one that has approvals:write" in answer.json()["error"]["message"]
            (waiting,) = (await client.get("/v1/approvals", headers=OTHER)).json()["approvals"]
            assert waiting["state"] == "waiting"


async def test_a_token_is_its_issuer_subject_and_client_however_often_it_is_issued(sample_package: None) -> None:
    def bearer(**claims: object) -> dict[str, str]:
        return bearing(token(scope=" ".join(SCOPES), **claims))

    async with served() as (_, client):
        ticket = await asked(client, bearer(azp="agent", jti="1"))
        assert refusal(await decide(client, ticket, bearer(azp="agent", jti="2"))) == (403, "own_call")
        assert refusal(await decide(client, ticket, bearer(client_id="agent"))) == (403, "own_call")
        assert (await decide(client, ticket, bearer(azp="console"))).status_code == 200
        again = await asked(client, bearer(sub="carl"))
        assert refusal(await decide(client, again, bearer(sub="carl"))) == (403, "own_call")
        assert (await decide(client, again, bearer(sub="bob"))).status_code == 200


async def test_the_own_call_of_a_tool_whose_policy_is_ask_caller_is_decided(sample_package: None) -> None:
    async with served() as (_, client):
        assert (await decide(client, await asked(client, ONE, "whoami"), ONE)).status_code == 200


async def test_a_queued_call_is_that_of_the_key_that_queued_it(sample_package: None) -> None:
    async with served() as (_, client):
        code = (await client.post("/api/sessions", headers=ONE, json={})).json()["code"]
        place = f"/api/sessions/{code}/tool-calls"
        body = {"tool": "echo", "arguments": {"text": "otters"}, "wait": False}
        queued = (await client.post(place, headers=ONE, json=body)).json()
        while (state := (await client.get(f"{place}/{queued['id']}", headers=ONE)).json())["status"] != "done":
            await asyncio.sleep(0)
        ticket = state["result"]["metadata"]["approval"]["id"]
        assert refusal(await decide(client, ticket, ONE)) == (403, "own_call")
        assert (await decide(client, ticket, OTHER)).status_code == 200


async def test_the_hosts_own_code_decides_every_call(sample_package: None) -> None:
    async with served() as (host, client):
        ticket = await asked(client, ONE)
        decided = await host.approvals.decide(ticket, "approve", Principal("root"))
        assert (decided.state, decided.decided_by) == ("approved", "root")


async def test_without_auth_a_decision_needs_the_hosts_key(
    sample_package: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(auth=None, store=f"sqlite:///{tmp_path}/state.db") as (_, client):
        ticket = await asked(client, {})
        file = tmp_path / "decide.key"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        key = file.read_text().strip()
        for wrong in ({}, {DECISION_KEY: ""}, {DECISION_KEY: "x" * 43}, {"Authorization": f"Bearer {key}"}):
            answer = await decide(client, ticket, wrong)
            assert refusal(answer) == (403, "own_call")
        message = answer.json()["error"]["message"]
        ways = ("link that toolplug serve prints", "`toolplug approvals`", DECISION_KEY, f"{tmp_path.name}/decide.key")
        assert [way for way in ways if way not in message] == []
        assert refusal(await decide(client, ticket, {}, "deny")) == (403, "own_call")
        assert (await decide(client, ticket, {DECISION_KEY: key})).status_code == 200
        assert (await decide(client, await asked(client, {}, "whoami"), {})).status_code == 200
        assert key not in caplog.text


async def test_without_auth_the_calls_of_the_hosts_own_code_need_the_key_too(sample_package: None) -> None:
    async with served(auth=None) as (host, client):
        me = Principal("me", scopes=frozenset(SCOPES))
        result = await host.executor_for(me).execute(ToolCall("c1", "echo", {"text": "otters"}))
        ticket = as_object(result.metadata["approval"])["id"]
        assert isinstance(ticket, str)
        assert refusal(await decide(client, ticket, {})) == (403, "own_call")
        assert (await decide(client, ticket, {DECISION_KEY: host.decision_key.text})).status_code == 200
        assert host.decision_key.file is None, "a store in memory has no files"


def test_the_key_is_made_once_and_only_read_from_a_file_of_this_user_alone(tmp_path: Path) -> None:
    first = DecisionKey.open(tmp_path)
    assert (DecisionKey.open(tmp_path), first.file) == (first, tmp_path / "decide.key")
    assert (first.matches(first.text.encode()), first.matches(None), first.matches(b"x")) == (True, False, False)
    file = tmp_path / "decide.key"
    seen = {first.text}

    def plant() -> None:
        file.unlink()
        (tmp_path / "planted").write_text("A" * 43)
        file.symlink_to(tmp_path / "planted")

    for spoil in (lambda: file.chmod(0o644), lambda: file.write_text("short"), plant):
        spoil()
        made = DecisionKey.open(tmp_path)
        assert made.text not in seen
        assert (file.is_symlink(), stat.S_IMODE(file.stat().st_mode)) == (False, 0o600)
        assert DecisionKey.open(tmp_path) == made
        seen.add(made.text)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decide.key", "planted"]
