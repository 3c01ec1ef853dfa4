"""Idempotency keys: the first result again, never a second effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.execution.harness import Harness, at_rest, cancelled, turns, until

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.cluster.processes import Processes
from toolplug.errors import StoreUnavailable, ToolError, ToolUnavailable
from toolplug.execution.idempotency import KEPT_S, Replays
from toolplug.execution.limiters import ConcurrencyLimit
from toolplug.sqlite.store import SqliteStore
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import DelegatingStore
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.anyio

ALICE = Principal(subject="alice", tenant="t1")
KEYED = CallContext(principal=ALICE, idempotency_key="k1")


class Effect:
    """A tool with an effect, which it counts."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, call: ToolCall, context: object) -> object:
        self.count += 1
        return {"count": self.count, "big": 2**64}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemoryStore]:
    async with MemoryStore(clock=clock) as opened:
        yield opened


@pytest.fixture
def rules(store: MemoryStore) -> dict[str, Any]:
    return {"replay": Replays(store, Processes(store))}


@pytest.mark.requirement("C-5-idempotent-replay")
async def test_the_same_body_gets_the_first_result(harness: Harness, rules: dict[str, Any]) -> None:
    tool = Effect()

    first = await harness.call(tool, {"a": 1, "b": [2]}, context=KEYED, **rules)
    again = await harness.call(tool, '{"b": [2], "a": 1}', context=KEYED, **rules)

    assert tool.count == 1
    assert again == first._replace(metadata={"idempotent_replayed": True})
    assert again.structured == {"count": 1, "big": 2**64}


@pytest.mark.parametrize("failing", [ValueError("panic"), ToolError("no", metadata={"code": "x"}, retry_after_s=2.0)])
async def test_a_failure_of_the_tool_is_a_first_result_too(
    harness: Harness, rules: dict[str, Any], failing: Exception
) -> None:
    effects: list[int] = []

    async def tool(call: object, context: object) -> None:
        effects.append(1)
        raise failing

    first = await harness.call(tool, context=KEYED, **rules)
    again = await harness.call(tool, context=KEYED, **rules)

    assert effects == [1]
    assert again == first._replace(metadata={**first.metadata, "idempotent_replayed": True})


@pytest.mark.requirement("C-5-idempotent-reused")
@pytest.mark.parametrize(
    ("arguments", "changed", "name"),
    [
        ({"a": 2}, {}, "tool"),
        ({"a": 1}, {"agent": "other"}, "tool"),
        ({"a": 1}, {"session": "other"}, "tool"),
        ({"a": 1}, {"options": {"x": 1}}, "tool"),
        ({"a": 1}, {}, "another"),
    ],
)
async def test_another_body_is_refused(
    harness: Harness, rules: dict[str, Any], arguments: object, changed: dict[str, Any], name: str
) -> None:
    tool = Effect()
    await harness.call(tool, {"a": 1}, context=KEYED, **rules)

    other = await harness.call(tool, arguments, context=KEYED._replace(**changed), name=name, **rules)

    assert (other.status, other.metadata) == (ToolStatus.DENIED, {"code": "idempotency_key_reused"})
    assert tool.count == 1


@pytest.mark.requirement("C-5-idempotent-principal", "C-5-tenant-store")
@pytest.mark.parametrize("principal", [Principal(subject="bob", tenant="t1"), Principal(subject="alice", tenant="t2")])
async def test_a_key_belongs_to_its_principal(harness: Harness, rules: dict[str, Any], principal: Principal) -> None:
    tool = Effect()
    await harness.call(tool, context=KEYED, **rules)
    await harness.call(tool, context=KEYED._replace(principal=principal), **rules)

    assert tool.count == 2


async def test_without_a_key_nothing_is_remembered(harness: Harness, rules: dict[str, Any], store: MemoryStore) -> None:
    await harness.call(Effect(), **rules)

    assert await store.keys() == []


@pytest.mark.requirement("C-5-idempotent-running")
async def test_a_call_that_still_runs_is_not_made_again(harness: Harness, rules: dict[str, Any]) -> None:
    release = asyncio.Event()

    async def tool(call: object, context: object) -> str:
        await release.wait()
        return "finished"

    first = asyncio.ensure_future(harness.call(tool, context=KEYED, **rules))
    await turns(10)
    second = await harness.call(tool, context=KEYED, **rules)
    release.set()

    assert (second.status, second.metadata) == (ToolStatus.LIMITED, {"code": "idempotency_key_running"})
    assert second.retry_after_s == 1.0
    assert (await first).output == "finished"


@pytest.mark.requirement("C-5-idempotent-expires")
async def test_a_result_is_kept_for_a_day(harness: Harness, rules: dict[str, Any], clock: ManualClock) -> None:
    tool = Effect()
    await harness.call(tool, context=KEYED, **rules)
    clock.now += KEPT_S - 1
    await harness.call(tool, context=KEYED, **rules)
    assert tool.count == 1
    clock.now += 2
    await harness.call(tool, context=KEYED, **rules)
    assert tool.count == 2


async def test_a_call_that_was_not_made_frees_its_key(harness: Harness, rules: dict[str, Any]) -> None:
    tool, full = Effect(), ConcurrencyLimit(0, 0, "plays")

    refused = await harness.call(tool, context=KEYED, limiters=(full,), **rules)
    made = await harness.call(tool, context=KEYED, **rules)

    assert (refused.status, made.status, tool.count) == (ToolStatus.LIMITED, ToolStatus.SUCCESS, 1)


async def test_a_call_cancelled_before_its_tool_began_frees_its_key(harness: Harness, rules: dict[str, Any]) -> None:
    tool, full = Effect(), ConcurrencyLimit(0, 1, "plays")
    waiting = asyncio.ensure_future(harness.call(tool, context=KEYED, limiters=(full,), **rules))
    await turns(10)
    waiting.cancel()

    assert await cancelled(waiting)
    assert (await harness.call(tool, context=KEYED, **rules)).status is ToolStatus.SUCCESS


@pytest.mark.requirement("C-5-idempotent-lost")
async def test_a_call_cancelled_while_its_tool_ran_is_not_made_again(
    harness: Harness, rules: dict[str, Any], clock: ManualClock
) -> None:
    async def hangs(call: object, context: object) -> None:
        await asyncio.Event().wait()

    tool = Effect()
    running = asyncio.ensure_future(harness.call(hangs, context=KEYED, timeout_s=10.0, **rules))
    await turns(10)
    running.cancel()
    assert await cancelled(running)
    await at_rest(harness)
    for age_s in (0.0, 41.0, KEPT_S - 42.0):
        clock.now += age_s
        again = await harness.call(tool, context=KEYED, **rules)
        assert (again.status, again.metadata["code"]) == (ToolStatus.TOOL_ERROR, "outcome_unknown")
    clock.now += 2
    assert (await harness.call(tool, context=KEYED, **rules)).status is ToolStatus.SUCCESS
    assert tool.count == 1


@pytest.mark.requirement("C-5-idempotent-lost")
@pytest.mark.parametrize("pause_s", [None, 1.0])
async def test_a_source_that_was_lost_during_the_call_keeps_the_key_of_a_call_that_may_have_run(
    harness: Harness, rules: dict[str, Any], pause_s: float | None
) -> None:
    tool = Effect()

    async def lost(call: object, context: object) -> None:
        raise ToolUnavailable("its server is down", code="server_down", retry_after_s=pause_s)

    first = await harness.call(lost, context=KEYED, **rules)
    again = await harness.call(tool, context=KEYED, **rules)

    assert first.status is ToolStatus.UNAVAILABLE
    assert (again.status, tool.count) == ((first.status, 0) if pause_s is None else (ToolStatus.SUCCESS, 1))


OUTCOME_UNKNOWN = ToolResult(
    "c1",
    "tool",
    'outcome of tool "tool" is unknown: it may have run, and left no result',
    ToolStatus.TOOL_ERROR,
    metadata={"code": "outcome_unknown"},
)


class Waiting:
    """A tool that begins, and ends when the test says so."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def __call__(self, call: object, context: object) -> str:
        await self.release.wait()
        return "finished"


@pytest.mark.requirement("C-5-idempotent-lost")
async def test_the_key_of_a_process_that_has_ended_is_not_made_again_by_the_next_one(
    harness: Harness, tmp_path: Path
) -> None:
    tool, waiting = Effect(), Waiting()
    async with SqliteStore(tmp_path / "state.db") as ended:
        first = asyncio.ensure_future(harness.call(waiting, context=KEYED, replay=Replays(ended, Processes(ended))))
        await until(lambda: harness.counters.in_flight == 1)

    async with SqliteStore(tmp_path / "state.db") as store:
        rules = {"replay": Replays(store, Processes(store))}
        assert await harness.call(tool, context=KEYED, **rules) == OUTCOME_UNKNOWN
        other = await harness.call(tool, {"b": 1}, context=KEYED, **rules)
        waiting.release.set()

    assert (other.status, other.metadata) == (ToolStatus.DENIED, {"code": "idempotency_key_reused"})
    assert ((await first).output, tool.count) == ("finished", 0)


@pytest.mark.requirement("C-5-idempotent-lost")
async def test_the_key_of_a_process_whose_lease_lapses_is_unknown_until_its_call_ends(
    harness: Harness, tmp_path: Path
) -> None:
    tool, waiting = Effect(), Waiting()
    async with (
        SqliteStore(tmp_path / "state.db", shared=True) as paused,
        SqliteStore(tmp_path / "state.db", shared=True) as store,
        Processes(store) as processes,
    ):
        rules = {"replay": Replays(store, processes)}
        async with Processes(paused) as its:
            first = asyncio.ensure_future(harness.call(waiting, context=KEYED, replay=Replays(paused, its)))
            await until(lambda: harness.counters.in_flight == 1)
            running = await harness.call(tool, context=KEYED, **rules)
        lapsed = await harness.call(tool, context=KEYED, **rules)
        waiting.release.set()
        await first
        ended = await harness.call(tool, context=KEYED, **rules)

    assert (running.status, running.metadata) == (ToolStatus.LIMITED, {"code": "idempotency_key_running"})
    assert (lapsed, ended.output, tool.count) == (OUTCOME_UNKNOWN, "finished", 0)


@pytest.mark.requirement("C-5-idempotent-lost")
async def test_a_result_that_could_not_be_kept_is_unknown_at_once(
    harness: Harness, store: MemoryStore, clock: ManualClock
) -> None:
    failing = FailingAtLast(store)
    tool, rules = Effect(), {"replay": Replays(failing, Processes(failing))}

    await harness.call(tool, context=KEYED, **rules)
    again = await harness.call(tool, context=KEYED, **rules)

    assert (again, tool.count) == (OUTCOME_UNKNOWN, 1)


class FailingAtLast(DelegatingStore):
    """A store that takes the mark of a call and then no more."""

    async def commit(self, key: str, value: bytes | None, **options: Any) -> int:
        if options.get("expected") != 0:
            raise StoreUnavailable("the disk is full")
        return await super().commit(key, value, **options)


async def test_of_two_that_begin_at_once_one_is_made(harness: Harness, rules: dict[str, Any]) -> None:
    tool = Effect()

    results = await asyncio.gather(*(harness.call(tool, context=KEYED, **rules) for _ in range(10)))

    assert tool.count == 1
    assert {result.status for result in results} <= {ToolStatus.SUCCESS, ToolStatus.LIMITED}


async def test_a_store_that_cannot_answer_makes_the_call_unavailable(harness: Harness, store: MemoryStore) -> None:
    tool = Effect()
    await store.aclose()

    result = await harness.call(tool, context=KEYED, replay=Replays(store, Processes(store)))

    assert result == ToolResult(
        "c1",
        "tool",
        'tool "tool" is unavailable: its store cannot answer',
        ToolStatus.UNAVAILABLE,
        metadata={"code": "store_unavailable"},
    )
    assert tool.count == 0


async def test_a_store_that_fails_at_the_end_does_not_cost_the_caller_its_result(
    harness: Harness, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def tool(call: object, context: object) -> str:
        await store.aclose()
        return "done"

    assert (await harness.call(tool, context=KEYED, replay=Replays(store, Processes(store)))).output == "done"
    assert "is not kept for its idempotency key" in caplog.text


async def test_a_result_that_comes_after_its_mark_expired_is_not_kept(store: MemoryStore, harness: Harness) -> None:
    await Replays(store, Processes(store)).finish(harness.plan(Effect()), KEYED, ToolResult(output="late"))

    assert await store.keys() == []


@pytest.mark.requirement("C-5-idempotent-replay")
async def test_a_result_is_kept_though_its_store_has_lost_the_mark(
    harness: Harness, rules: dict[str, Any], store: MemoryStore
) -> None:
    """As Redis loses all without a file of what it had."""
    tool = Effect()

    async def lose(call: ToolCall, context: object) -> object:
        for key in await store.keys("replay/"):
            await store.commit(key, None)
        return await tool(call, context)

    first = await harness.call(lose, context=KEYED, **rules)
    assert await harness.call(lose, context=KEYED, **rules) == first._replace(metadata={"idempotent_replayed": True})
    assert tool.count == 1
