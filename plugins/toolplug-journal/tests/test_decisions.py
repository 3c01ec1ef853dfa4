"""What people have decided, and taken back, is read with the calls that it is about."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from toolplug import Principal
from toolplug_journal.command import add_command

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I35-chain")]

ADA = Principal("ada", "t1", scopes=frozenset({"tools:read", "tools:call"}))
EVE = Principal("eve", "t1", scopes=frozenset({"approvals:write", "journal:read"}))
OPS = Principal("ops", "t2", scopes=frozenset({"operator", "journal:read"}))
GRANT = {"scope": "caller", "for": "1h"}


async def test_decisions_are_among_the_calls_for_people_and_not_for_a_model_or_the_numbers_of_calls(
    in_process_host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {"policy": "ask", "grants": {"most": "8h", "scope": "caller"}}
    file = tmp_path / "providers.yaml"
    file.write_text("providers: {journal: {enabled: true}}\n")
    providers = {"hello": {"enabled": True, "tools": {"hello": rule}}, "journal": {"enabled": True}}
    async with in_process_host({"providers": providers, "journal": {}}, principals=[ADA, EVE, OPS]) as served:
        ada, eve, ops = (served.callers[name] for name in ("ada", "eve", "ops"))

        async def read(caller: Any = eve, path: str = "/v1/journal", **query: object) -> list[dict[str, Any]]:
            answer = await caller.client.get(path, params=query)
            assert answer.status_code == 200, answer.text
            return answer.json()["calls"]

        for name, decision in (("Ada", {"decision": "approve", "grant": GRANT}), ("Bob", {"decision": "deny"})):
            asked = (await ada.call("hello", name=name)).metadata["approval"]["id"]
            assert (await eve.client.post(f"/v1/approvals/{asked}", json={**decision, "reason": "so"})).is_success
            await until(read, 2 if name == "Ada" else 4)
        (grant,) = (await eve.client.get("/v1/grants")).json()["grants"]
        for _ in range(2):
            assert (await ada.call("hello", name="Ada")).output == "Hello, Ada!"
        assert (await eve.client.delete(f"/v1/grants/{grant['id']}")).status_code == 204
        kept = await until(read, 7)
        assert [(each["tool"], each["subject"], each["status"]) for each in kept] == [
            ("hello", "ada", "denied"),
            ("hello", "ada", "approval_approved"),
            ("hello", "ada", "denied"),
            ("hello", "ada", "approval_denied"),
            ("hello", "ada", "success"),
            ("hello", "ada", "success"),
            ("hello", "ada", "grant_revoked"),
        ]
        approved, denied, revoked = kept[1], kept[3], kept[6]
        assert (approved["approval"], approved["decided_by"]) == (kept[0]["approval"], "eve")
        assert (approved["reason"], approved["grant"], kept[5]["granted_by"]) == ("so", grant["id"], grant["id"])
        assert (denied["approval"], denied["decided_by"], "grant" in denied) == (kept[2]["approval"], "eve", False)
        assert (revoked["grant"], revoked["revoked_by"]) == (grant["id"], "eve")
        assert await read(newest="true") == kept[::-1]
        calls = [each for each in kept if each["status"] in ("denied", "success")]
        assert await read(newest="true", calls="true") == calls[::-1]
        everybodys = await read(ops, "/v1/journal/all")
        assert everybodys == [{"tenant": "t1", **each} for each in kept]
        assert await read(ops) == []
        recent = json.loads((await ada.call("journal_recent")).output)["calls"]
        assert {each["status"] for each in recent} == {"denied", "success"}
        journal = served.host.plugins.get_plugin("journal")
        collected = await journal.collect(0, 100, time.time())
        assert [call.id for _, call in collected][:4] == [each["id"] for each in calls]
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    add_command(app)
    listed = CliRunner().invoke(app, ["--tenant", "t1", "--tool", "hello"]).stdout.splitlines()
    by = [line.split()[-1] for line in listed]
    assert by == ["BY", "eve", grant["id"], "call", "eve", "call", "eve", "call"]


async def until(read: Any, number: int) -> list[dict[str, Any]]:
    """The entries, once there are so many: plugins hear of decisions in the background."""
    async with asyncio.timeout(20):
        while True:
            found: list[dict[str, Any]] = await read()
            if len(found) >= number:
                return found
            await asyncio.sleep(0.01)
