"""What a grant does not override, who sees it, and how much may wait."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.faulty_store import FaultyStore, delay_keys
from tests.http.conftest import as_holder
from tests.http.test_grants import AUTH, CALLER, PERSON, SEER, SMALL, call, decide, grant, listed, sections, served

from toolplug import open_host
from toolplug.errors import ConfigError
from toolplug.host.file.store_entry import ConfiguredStore
from toolplug.part_protocols.approvals import LIFE_S
from toolplug.parts.approvals import grants as grants_module
from toolplug.parts.approvals import running
from toolplug.parts.approvals.limits import FRESH_S
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I35-grants")]

EVERY = {**CALLER, "any": True}


@pytest.mark.parametrize(
    ("entry", "statuses"),
    [
        ({"tools": {"query": {"policy": "ask", "grants": EVERY}}}, ["success", "success", "denied"]),
        ({"tools": {"query": {"policy": "deny", "grants": EVERY}}}, ["denied", "denied", "denied"]),
        (
            {"tools": {"query": {"policy": "ask", "grants": EVERY, "limits": {"rate": "1/hour"}}}},
            ["success", "limited", "denied"],
        ),
        ({"tools": {"query": {"policy": "disable", "grants": EVERY}}}, ["unknown_tool"] * 3),
    ],
    ids=["allowed", "deny", "limit", "disable"],
)
async def test_a_grant_for_every_call_overrides_no_denial_veto_limit_or_switch(
    entry: dict[str, Any], statuses: list[str], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    async with served(sections(url, grants=EVERY)) as (_, client):
        asked = await call(client, table="orders", limit=1)
        assert (await decide(client, asked, **grant(True))).status_code == 200
        await call(client, table="orders", limit=1)  # the call that was approved uses its ticket
    settings = sections(url)
    settings["providers"]["ops"] = entry
    async with served(settings) as (_, client):
        answers = [await call(client, table=table) for table in ("orders", "users", "secrets")]
        assert [answer["status"] for answer in answers] == statuses
        if statuses[0] == "success":
            assert "not that table" in answers[2]["output"]  # the plugin's veto


async def test_a_process_that_cannot_reach_the_store_uses_no_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as life:
        store = FaultyStore(await life.enter_async_context(MemoryStore()))
        monkeypatch.setattr(ConfiguredStore, "open", lambda _: store)
        _, client = await life.enter_async_context(served(sections()))
        await decide(client, await call(client, table="orders", limit=1), **grant())
        for number in (1, 2, 3):
            assert (await call(client, table="orders", limit=number))["status"] == "success"
        store.fails = lambda _: True
        await asyncio.sleep(FRESH_S + 0.1)
        answer = await call(client, table="orders", limit=4)
        assert (answer["status"], answer["metadata"]) == ("unavailable", {"code": "store_unavailable"})
        store.fails = lambda _: False
        assert (await call(client, table="orders", limit=5))["status"] == "success"


async def test_so_many_calls_of_a_tenant_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert running.MAX_WAITING == 1_000
    monkeypatch.setattr(running, "MAX_WAITING", 3)
    async with served(sections()) as (_, client):
        callers = (as_holder("agent-key"), as_holder("other-key"))
        answers = [await call(client, who, table="orders", limit=n) for n in (1, 2) for who in callers]
        assert [answer["status"] for answer in answers] == ["denied"] * 3 + ["limited"]
        assert "3 calls wait for approval" in answers[-1]["output"]
        assert (await call(client, callers[0], table="orders", limit=1))["metadata"] == answers[0]["metadata"]


@pytest.mark.parametrize(("life", "waits_s"), [(None, 300.0), ("8h", 8 * 3600.0), ("168h", 168 * 3600.0)])
async def test_a_question_waits_five_minutes_or_as_long_as_the_file_says(life: str | None, waits_s: float) -> None:
    more = {} if life is None else {"approvals": {"life": life}}
    async with served(sections(**more)) as (host, client):
        await call(client, table="orders", limit=1)
        (key,) = await host.store.keys("approval/")
        record = await host.store.read(key)
        assert record is not None
        assert waits_s - 60 < json.loads(record.value)["expires_at"] - host.store.now() <= waits_s
    assert LIFE_S == 300


async def test_a_question_waits_no_longer_than_a_week() -> None:
    with pytest.raises(ConfigError, match=r"approvals\.life"):
        async with open_host({"store": "memory://", "approvals": {"life": "169h"}}, environ={}):
            pass


async def test_who_may_read_approvals_reads_grants_whole_and_by_caller_and_tool() -> None:
    settings = sections()
    settings["auth"] = {"api_keys": [*AUTH["api_keys"], {"key": "root-key", "subject": "root", "scopes": ["admin"]}]}
    async with served(settings) as (_, client):
        for who in ("agent", "other"):
            asked = await call(client, as_holder(f"{who}-key"), table="orders", limit=1)
            await decide(client, asked, **grant(calls=7))
        readers = [await listed(client, who) for who in (SEER, PERSON, as_holder("root-key"))]
        assert readers[0] == readers[1] == readers[2]
        first = next(item for item in readers[0] if item["caller"] == "agent")
        known = {name: value for name, value in first.items() if name not in ("id", "digest", "made_at", "expires_at")}
        assert known == {
            "tool": "query",
            "caller": "agent",
            "agent": None,
            "session": False,
            "tenant": "default",
            "scope": "caller",
            "arguments": SMALL,
            "made_by": "person",
            "calls_left": 7,
            "used": 0,
        }
        for query, callers in (("caller=agent", ["agent"]), ("tool=query", ["agent", "other"]), ("caller=x", [])):
            found = (await client.get(f"/v1/grants?{query}", headers=SEER)).json()["grants"]
            assert sorted(item["caller"] for item in found) == callers
        refused = await decide(client, await call(client, table="orders", limit=500), SEER)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")


async def test_the_audit_log_says_with_which_arguments_a_call_runs_and_which_grant_was_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "toolplug.audit")
    async with served(sections()) as (_, client):
        await decide(client, await call(client, table="orders", limit=5), arguments={"table": "users", "limit": 2})
        await decide(client, await call(client, table="orders", limit=6), **grant())
        (made,) = await listed(client)
    lines = [json.loads(each.message) for each in caplog.records if '"approval.approve"' in each.message]
    assert json.loads(lines[0]["ran"]) == {"table": "users", "limit": 2}
    assert ("ran" in lines[1], lines[1]["grant"]) == (False, made["id"])


async def test_calls_of_a_caller_that_come_at_once_count_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    delay_keys(monkeypatch)
    monkeypatch.setattr(running, "MAX_WAITING_OF_CALLER", 3)
    async with served(sections()) as (_, client):
        answers = await asyncio.gather(*(call(client, table="orders", limit=number) for number in range(1, 11)))
        assert Counter(answer["status"] for answer in answers) == {"denied": 3, "limited": 7}


@pytest.mark.parametrize("limit", ["MAX_GRANTS", "MAX_GRANTS_OF_TENANT"])
async def test_grants_that_are_made_at_once_count_each_other(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants_module, limit, 2)
    delay_keys(monkeypatch)
    async with served(sections()) as (_, client):
        asked = [await call(client, table=f"table {number}", limit=1) for number in range(5)]
        answers = await asyncio.gather(*(decide(client, each, **grant(None)) for each in asked))
        assert Counter(answer.status_code for answer in answers) == {200: 2, 422: 3}
        assert len(await listed(client)) == 2
