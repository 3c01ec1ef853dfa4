"""Idempotency keys: the first result again, never a second effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.execution.harness import Harness, at_rest, cancelled, turns

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.errors import ToolError
from toolplug.execution.idempotency import KEPT_S, Replays
from toolplug.execution.limits import ConcurrencyLimit
from toolplug.stores.memory import MemoryStore
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
    return {"replay": Replays(store)}


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


async def test_a_call_cancelled_while_its_tool_ran_keeps_its_key_for_its_lease(
    harness: Harness, rules: dict[str, Any], clock: ManualClock
) -> None:
    async def hangs(call: object, context: object) -> None:
        await asyncio.Event().wait()

    running = asyncio.ensure_future(harness.call(hangs, context=KEYED, timeout_s=10.0, **rules))
    await turns(10)
    running.cancel()
    assert await cancelled(running)
    await at_rest(harness)
    assert (await harness.call(Effect(), context=KEYED, **rules)).status is ToolStatus.LIMITED
    clock.now += 41.0
    assert (await harness.call(Effect(), context=KEYED, **rules)).status is ToolStatus.SUCCESS


async def test_of_two_that_begin_at_once_one_is_made(harness: Harness, rules: dict[str, Any]) -> None:
    tool = Effect()

    results = await asyncio.gather(*(harness.call(tool, context=KEYED, **rules) for _ in range(10)))

    assert tool.count == 1
    assert {result.status for result in results} <= {ToolStatus.SUCCESS, ToolStatus.LIMITED}


async def test_a_store_that_cannot_answer_makes_the_call_unavailable(harness: Harness, store: MemoryStore) -> None:
    tool = Effect()
    await store.aclose()

    result = await harness.call(tool, context=KEYED, replay=Replays(store))

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

    assert (await harness.call(tool, context=KEYED, replay=Replays(store))).output == "done"
    assert "is not kept for its idempotency key" in caplog.text


async def test_a_result_that_comes_after_its_mark_expired_is_not_kept(store: MemoryStore, harness: Harness) -> None:
    await Replays(store).finish(harness.plan(Effect()), KEYED, ToolResult(output="late"))

    assert await store.keys() == []
