"""What the journal keeps of calls, for whom, for how long, and how it is read."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from toolplug import Principal
from toolplug.errors import ConfigError
from toolplug.testing.in_process import Caller
from toolplug_journal.entry import MAX_ARGUMENT_BYTES, argument_text, short

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[Any]]


async def page(caller: Any, **query: object) -> list[dict[str, Any]]:
    answer = await caller.client.get("/v1/journal", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["calls"]


def shown(calls: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """The part of each entry that no clock decides."""
    return [(call["subject"], call["tool"], call["call_id"], call["status"]) for call in calls]


def file_of(folder: Path) -> Path:
    return folder / ".toolplug" / "providers" / "journal" / "journal.db"


@pytest.mark.requirement("I2-8-journal", "I2-8-journal-read", "C-12-before-call", "C-12-after-call")
async def test_every_call_is_kept_with_who_made_it_how_it_ended_and_how_long_it_took(serve: Serve) -> None:
    async with serve() as served:
        assert (await served.call("hello", name="Ann")).output == "Hi, Ann!"
        await served.callers["eve"].client.post("/v1/tool-calls", json={"id": "e1", "name": "hello", "arguments": {}})
        calls = await page(served.callers["ann"])
        assert shown(calls) == [("ann", "hello", "call", "success"), ("eve", "hello", "e1", "success")]
        assert all(0 <= call["duration_s"] < 60 and call["ts"] > 1.7e9 for call in calls)
        assert calls[0]["id"] < calls[1]["id"]
        assert set(calls[0]) == {"id", "ts", "subject", "tool", "call_id", "status", "duration_s"}


@pytest.mark.requirement("I2-8-journal")
async def test_a_call_through_a_toolset_has_the_name_that_questions_and_grants_have(serve: Serve) -> None:
    office = {
        "toolsets": {"office": {"prefix": "office", "from": "provider:hello"}},
        "agents": {"clerk": {"toolsets": ["office"]}},
    }
    async with serve(office) as served:
        ann = served.callers["ann"]
        body = {"id": "a1", "name": "office.hello", "arguments": {"name": "Ann"}, "agent": "clerk"}
        await ann.client.post("/v1/tool-calls", json=body)
        assert shown(await page(ann)) == [("ann", "office.hello", "a1", "success")]


@pytest.mark.requirement("I2-8-journal-arguments")
async def test_arguments_are_kept_only_where_the_operator_says_so_and_results_never(
    serve: Serve, tmp_path: Path
) -> None:
    async with serve() as served:
        await served.call("hello", name="Ann")
        assert "arguments" not in (await page(served.callers["ann"]))[0]
    assert b"Ann" not in file_of(tmp_path).read_bytes()
    async with serve(arguments=True) as served:
        await served.call("hello", name="Ann")
        assert (await page(served.callers["ann"]))[-1]["arguments"] == {"name": "Ann"}
    assert b"Hi, Ann!" not in file_of(tmp_path).read_bytes()


def test_of_large_arguments_only_the_size_is_kept_and_of_long_texts_the_beginning() -> None:
    fits = "x" * (MAX_ARGUMENT_BYTES - len('{"a":""}'))
    assert argument_text({"a": fits}) == f'{{"a":"{fits}"}}'
    assert json.loads(argument_text({"a": fits + "x"})) == {"$omitted_bytes": MAX_ARGUMENT_BYTES + 1}
    assert short("i" * 300) == "i" * 256


@pytest.mark.requirement("I2-8-journal-read")
async def test_each_tenant_reads_its_own_calls_by_route_and_by_tool(serve: Serve) -> None:
    async with serve() as served:
        for subject in ("ann", "bob", "eve"):
            await served.callers[subject].call("hello")
        assert [call["subject"] for call in await page(served.callers["bob"])] == ["bob"]
        assert [call["subject"] for call in await page(served.callers["ann"])] == ["ann", "eve"]
        recent = json.loads((await served.call("journal_recent")).output)
        assert shown(recent["calls"]) == [("eve", "hello", "call", "success"), ("ann", "hello", "call", "success")]
        assert json.loads((await served.call("journal_recent", tool="hello", limit=1)).output)["calls"] == [
            recent["calls"][0]
        ]


@pytest.mark.requirement("I2-8-journal-read")
async def test_reading_over_http_needs_the_journals_own_scope(serve: Serve) -> None:
    async with serve() as served:
        refused = await served.callers["eve"].client.get("/v1/journal")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
        assert (await served.nobody.get("/v1/journal")).status_code == 401


@pytest.mark.requirement("I2-8-journal-read")
async def test_pages_hold_every_call_once_whatever_is_written_meanwhile(serve: Serve) -> None:
    async with serve() as served:
        await asyncio.gather(*(served.call("hello", name=str(number)) for number in range(7)))
        seen: list[int] = []
        more = True
        while more:
            after = seen[-1] if seen else 0
            answer = (await served.client.get("/v1/journal", params={"after": after, "limit": 3})).json()
            seen += [call["id"] for call in answer["calls"]]
            more = answer["has_more"]
        assert len(seen) == 7
        assert seen == sorted(set(seen))
        await served.call("hello")
        assert len(await page(served.callers["ann"], after=seen[-1])) == 1


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "after=-1", "after=x", "since=1", "limit=9&after=%ff"])
async def test_a_query_that_means_nothing_is_a_bad_request(serve: Serve, query: str) -> None:
    async with serve() as served:
        answer = await served.client.get(f"/v1/journal?{query}")
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request")


@pytest.mark.requirement("I2-8-journal")
async def test_calls_that_reach_no_tool_are_kept_without_a_duration(serve: Serve) -> None:
    async with serve() as served:
        await served.client.post("/v1/tool-calls", json={"id": "u", "name": "nosuch", "arguments": {}})
        await served.client.post("/v1/tool-calls", json={"id": "v", "name": "hello", "arguments": {"name": 1}})
        await served.client.post("/v1/tool-calls", json={"id": "w", "name": "hello", "arguments": "{"})
        unknown, invalid, broken = await page(served.callers["ann"])
        assert shown([unknown, invalid, broken]) == [
            ("ann", "nosuch", "u", "unknown_tool"),
            ("ann", "hello", "v", "invalid_arguments"),
            ("ann", "hello", "w", "invalid_arguments"),
        ]
        assert [call["duration_s"] for call in (unknown, invalid, broken)] == [None, None, None]


@pytest.mark.requirement("I2-8-journal")
async def test_a_call_that_another_plugin_or_a_policy_refuses_is_kept_as_denied(in_process_host: Any) -> None:
    providers = {
        "guard": {"enabled": True, "rules": [{"tool": "hello", "reason": "no"}]},
        "journal": {"enabled": True, "tools": {"journal_recent": {"policy": "deny"}}},
        "hello": {"enabled": True},
    }
    async with in_process_host({"providers": providers}) as served:
        await served.call("hello")
        await served.call("journal_recent")
        calls = await page(served)
        assert [(call["tool"], call["status"]) for call in calls] == [("hello", "denied"), ("journal_recent", "denied")]


async def test_rules_are_the_guards_now(serve: Serve) -> None:
    with pytest.raises(ConfigError, match="pip install toolplug-guard") as caught:
        async with serve(rules=[{"tool": "hello", "reason": "no"}]):
            raise AssertionError("it must not start")
    (problem,) = caught.value.problems
    assert problem.path == "providers.journal"


@pytest.mark.requirement("I2-8-journal")
async def test_a_restart_keeps_the_journal_and_every_id_rises(serve: Serve) -> None:
    async with serve() as served:
        await served.call("hello")
        (first,) = await page(served.callers["ann"])
    async with serve() as served:
        await served.call("hello")
        again, second = await page(served.callers["ann"])
        assert again == first
        assert second["id"] > first["id"]


async def test_only_the_newest_calls_of_each_tenant_are_kept(serve: Serve) -> None:
    async with serve(max_rows=2) as served:
        await served.callers["bob"].call("hello", name="first")
        for number in range(4):
            await served.client.post("/v1/tool-calls", json={"id": str(number), "name": "hello", "arguments": {}})
        assert [call["call_id"] for call in await page(served.callers["ann"])] == ["2", "3"]
        assert len(await page(served.callers["bob"])) == 1
        assert served.host.metrics.get_sample_value("journal_calls") == 3


async def test_calls_that_are_too_old_are_neither_shown_nor_kept(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        await served.call("hello")
    with closing(sqlite3.connect(file_of(tmp_path))) as connection, connection:
        connection.execute("UPDATE calls SET began_at = began_at - 86400 * 29")
    async with serve() as served:
        assert len(await page(served.callers["ann"])) == 1
    async with serve(keep_days=28) as served:
        assert await page(served.callers["ann"]) == []
        assert served.host.metrics.get_sample_value("journal_calls") == 0


async def test_a_journal_that_cannot_be_written_fails_no_call_and_is_counted(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        with closing(sqlite3.connect(file_of(tmp_path))) as connection:
            connection.execute("DROP TABLE calls")
        assert (await served.call("hello")).output == "Hi, world!"
        failed = served.host.metrics.get_sample_value("journal_entries_total", {"outcome": "failed"})
        unread = await served.call("journal_recent")
        assert (failed, unread.output) == (2, "the journal cannot be read now")
        assert (await served.client.get("/v1/journal")).status_code == 503


async def test_one_entry_that_cannot_be_written_costs_no_other_its_place(serve: Serve) -> None:
    async with serve() as served:
        odd = Principal(subject="\ud800", tenant="t1", scopes=frozenset({"admin"}))
        stranger = Caller(odd, served.client, served.host)
        await asyncio.gather(*(caller.call("hello") for caller in (served.callers["ann"], stranger)))
        assert [call["subject"] for call in await page(served.callers["ann"])] == ["ann"]


@pytest.mark.parametrize("content", [b"no database" * 100, None], ids=["garbage", "newer"])
async def test_a_file_that_is_no_journal_of_this_version_is_left_as_it_is(
    serve: Serve, tmp_path: Path, content: bytes | None
) -> None:
    file_of(tmp_path).parent.mkdir(parents=True)
    if content is None:
        with closing(sqlite3.connect(file_of(tmp_path))) as connection:
            connection.execute("PRAGMA user_version = 99")
    else:
        file_of(tmp_path).write_bytes(content)
    before = file_of(tmp_path).read_bytes()
    with pytest.raises(ConfigError, match="journal"):
        async with serve():
            raise AssertionError("it must not start")
    assert file_of(tmp_path).read_bytes() == before


@pytest.mark.requirement("REG-US3-1")
async def test_its_own_metrics_stand_at_metrics(serve: Serve) -> None:
    async with serve() as served:
        await served.call("hello")
        await served.call("journal_recent")
        lines = (await served.client.get("/metrics")).text.splitlines()
        assert 'journal_entries_total{outcome="kept"} 4.0' in lines
        assert "journal_calls 2.0" in lines
