"""The section `journal`: the entries of every tenant for the operator, and readiness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolplug import Principal

pytestmark = pytest.mark.anyio

ANN = Principal(subject="ann", tenant="t1", scopes=frozenset({"tools:read", "tools:call", "admin"}))
BOB = Principal(subject="bob", tenant="t2", scopes=frozenset({"tools:read", "tools:call"}))
OPS = Principal(subject="ops", tenant="t3", scopes=frozenset({"operator"}))
HELLO = {"hello": {"enabled": True, "greeting": "Hi"}}


async def test_the_operator_reads_the_calls_of_every_tenant_page_by_page(in_process_host: Any) -> None:
    async with in_process_host({"providers": HELLO, "journal": {}}, principals=[ANN, BOB, OPS]) as served:
        for name, caller in (("a", "ann"), ("b", "bob"), ("c", "ann")):
            call = {"id": name, "name": "hello", "arguments": {}}
            await served.callers[caller].client.post("/v1/tool-calls", json=call)
        client = served.callers["ops"].client
        first = (await client.get("/v1/journal/all", params={"limit": 2})).json()
        assert [(call["tenant"], call["call_id"]) for call in first["calls"]] == [("t1", "a"), ("t2", "b")]
        rest = (await client.get("/v1/journal/all", params={"after": first["calls"][-1]["id"]})).json()
        assert [call["call_id"] for call in rest["calls"]] == ["c"]
        assert (first["has_more"], rest["has_more"]) == (True, False)
        assert (await client.get("/v1/journal/all", params={"limit": 0})).status_code == 400
        assert (await served.callers["ann"].client.get("/v1/journal/all")).status_code == 403
        assert (await served.callers["ann"].client.get("/v1/journal")).status_code == 200
        assert "/v1/journal/all" in (await client.get("/v1/openapi.json")).json()["paths"]


async def test_the_host_is_not_ready_while_the_journal_cannot_be_written(in_process_host: Any, tmp_path: Path) -> None:
    settings = {"providers": HELLO, "journal": {"unready_after": 0.001}}
    async with in_process_host(settings, principals=[ANN]) as served:
        assert await served.host.ready() == ()
        file = tmp_path / ".toolplug" / "providers" / "journal" / "journal.db"
        whole = file.with_name("whole.db")
        served.host.plugins.get_plugin("journal")._writer._note_failure(OSError("the disk is full"), 1)
        (down,) = await served.host.ready()
        assert (down.part, down.reason) == ("journal", "the journal has not been written for 0.001 s or more")
        assert (file.exists(), whole.exists()) == (True, False)
        await served.call("hello")
        assert await served.host.ready() == ()


async def test_without_a_running_journal_the_host_is_not_ready(in_process_host: Any) -> None:
    settings = {"providers": HELLO, "journal": {"entry": "diary"}}
    async with in_process_host(settings, principals=[OPS]) as served:
        (down,) = await served.host.ready()
        assert down.reason == "no journal runs as provider 'diary'"
        assert (await served.callers["ops"].client.get("/v1/journal/all")).status_code == 503


async def test_without_the_section_nothing_is_offered(in_process_host: Any) -> None:
    providers = {**HELLO, "journal": {"enabled": True}}
    async with in_process_host({"providers": providers}, principals=[OPS]) as served:
        client = served.callers["ops"].client
        assert (await client.get("/v1/journal/all")).status_code == 404
        assert "/v1/journal/all" not in (await client.get("/v1/openapi.json")).json()["paths"]
