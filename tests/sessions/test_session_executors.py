"""A session's tools are an executor like any other: the laws hold for it, and for what it is joined into."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from weakref import ref

import pytest
from tests.plain_tools import plain_tool
from tests.sessions.fixtures import (
    LIMITS,
    T1,
    T2,
    ArrangedNeighbours,
    added,
    call,
    calling,
    definition,
    modified,
    registration,
    removed,
    serving,
)

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import Catalog
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.plans import CallServices, ToolPolicy
from toolplug.execution.run import UnknownCalls
from toolplug.execution.task_runner import TaskRunner
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.shared import RecentExecutors
from toolplug.parts.sessions.tools.session_tool import SessionPlanner
from toolplug.stores.store import Store
from toolplug.testing.executor_laws import check_executor

pytestmark = pytest.mark.anyio

COUNTERS = UnknownCalls(CallAccounting().counters("_unknown", "_unknown"))
DRAW = definition("page.draw") | {
    "inputSchema": {"type": "object", "properties": {"shape": {"type": "string"}}, "required": ["shape"]}
}
CALLS: Mapping[str, Mapping[str, object]] = {"a": {"x": 1}, "page.draw": {"shape": "circle"}}


@pytest.fixture
async def session(sessions: Sessions) -> AsyncIterator[Session]:
    session = (await sessions.create(T1)).session
    await session.register(replace(registration(), tools=[definition("a"), DRAW]))
    async with serving(session, lambda request: request["arguments"]):
        yield session


def _itself(session: Session) -> LiveCatalog:
    return session.executor


def _behind_another(session: Session) -> LiveCatalog:
    return MergedExecutor(
        COUNTERS, LiveCatalog(COUNTERS, Catalog([plain_tool("other")])), session.executor, session=session.code
    )


def _before_a_prefixed_one(session: Session) -> LiveCatalog:
    others = LiveCatalog(COUNTERS, Catalog([plain_tool("other")])).view(lambda catalog: catalog.prefixed("web"))
    return MergedExecutor(COUNTERS, session.executor, others)


@pytest.mark.requirement("DYN-AC-7", "I3-4-everywhere", "DYN-US-register")
@pytest.mark.parametrize("of", [_itself, _behind_another, _before_a_prefixed_one])
async def test_the_laws_of_executors_hold(session: Session, of: Callable[[Session], LiveCatalog]) -> None:
    executor = of(session)
    await check_executor(executor, calls=CALLS, change=lambda: session.update(added("b"), "law"))
    await check_executor(executor, calls=CALLS | {"b": {}}, change=lambda: session.update(removed("b"), "law"))
    await check_executor(executor, calls=CALLS, change=lambda: session.update(modified("a", "New."), "law"))


@pytest.mark.requirement("DYN-AC-10", "DYN-AC-4", "I3-7-side-by-side")
async def test_a_call_reaches_the_plugin_of_its_own_session_only(sessions: Sessions, session: Session) -> None:
    other = (await sessions.create(T2)).session
    await other.register(replace(registration(), tools=[definition("a"), DRAW]))
    async with serving(other, lambda _: "theirs"):
        results = await asyncio.gather(*(call(each, "a", {"x": 1}) for each in (session, other) * 20))
    assert [result.output for result in results] == ['{"x":1}', "theirs"] * 20


@pytest.mark.requirement("DYN-AC-10")
async def test_a_tool_of_another_session_is_unknown(sessions: Sessions, session: Session) -> None:
    other = (await sessions.create(T1)).session
    await other.register(registration("theirs"))
    result = await call(session, "theirs")
    assert (result.status, result.output) == (
        ToolStatus.UNKNOWN_TOOL,
        'no builtin provider handles tool "theirs"',
    )


async def test_bad_arguments_never_reach_the_plugin(session: Session) -> None:
    result = await call(session, "page.draw", {"shape": 7})
    assert result.status is ToolStatus.INVALID_ARGUMENTS
    assert result.output == 'invalid arguments for tool "page.draw"\n/shape: must be of type "string"'


async def test_a_removed_tool_is_unknown_and_its_running_call_goes_on(sessions: Sessions) -> None:
    session = (await sessions.create(T1)).session
    await session.register(registration("a", "b"))
    running = await calling(session, "a")
    await session.update(removed("a"), "gone")
    assert (await call(session, "a")).status is ToolStatus.UNKNOWN_TOOL
    async with serving(session, lambda _: "still answered"):
        assert (await running).output == "still answered"


async def test_what_did_not_change_stays_the_same_tool(session: Session) -> None:
    before = session.executor.catalog
    await session.update(added("b"), "more")
    after = session.executor.catalog
    assert after["a"] is before["a"]
    assert after["page.draw"] is before["page.draw"]


@pytest.mark.requirement("DYN-AC-10")
async def test_the_calls_of_an_ended_session_reach_nobody_through_a_kept_executor(
    sessions: Sessions, session: Session
) -> None:
    executor, tool = session.executor, session.executor.catalog["a"]
    await sessions.end(session, T1)
    assert list(executor.catalog) == []
    assert (await executor.execute(ToolCall("c1", "a", {}), CallContext(T1))).status is ToolStatus.UNKNOWN_TOOL
    assert not tool.plan.switch.open


@pytest.mark.requirement("C-3-policy-session-default", "I3-4-hooks")
async def test_the_operators_rules_hold_for_session_tools_from_the_reload_on(
    sessions: Sessions, session: Session
) -> None:
    executor = session.executor
    runner = TaskRunner()
    denying = SessionPlanner(CallServices(runner=runner), ToolPolicy("deny", "providers.yaml:9"))
    sessions.reconfigure(LIMITS, denying)
    for held in (executor, session.executor):
        result = await held.execute(ToolCall("c1", "a", {}), CallContext(T1))
        assert result.status is ToolStatus.DENIED
        assert list(held.catalog) == ["a", "page.draw"]
    await session.update(added("b"), "after")
    assert (await call(session, "b")).status is ToolStatus.DENIED


@pytest.mark.requirement("C-5-metric-session")
async def test_calls_are_counted_under_one_name_for_all_sessions(store: Store, neighbours: ArrangedNeighbours) -> None:
    accounting, runner = CallAccounting(), TaskRunner()
    await runner.open()
    async with Sessions(
        store, SessionPlanner(CallServices(accounting=accounting, runner=runner)), neighbours, limits=LIMITS
    ) as sessions:
        for principal in (T1, T2):
            session = (await sessions.create(principal)).session
            await session.register(registration("secret_name"))
            async with serving(session, lambda _: 1):
                await call(session, "secret_name")
                await call(session, "none")
    await runner.aclose()
    counted = {
        (counters.provider, counters.tool_name): {str(status): count for status, count in counters.ended.items()}
        for counters in accounting.all_counters()
        if counters.ended
    }
    assert counted == {("_session", "_session"): {"success": 2}, ("_unknown", "_unknown"): {"unknown_tool": 2}}


@pytest.mark.judge
async def test_an_idle_sessions_executor_is_not_kept_for_ever(session: Session) -> None:
    executors = RecentExecutors(1_000)
    kept = [LiveCatalog(COUNTERS) for _ in range(1_001)]
    first, last = ref(kept[0]), ref(kept[-1])
    for number, executor in enumerate(kept):
        executors.put(str(number), executor)
    del executor
    kept.clear()
    gc.collect()
    assert first() is None
    assert last() is not None
    executors.drop("1000")
    gc.collect()
    assert last() is None


async def test_the_executor_of_a_session_in_use_is_one_object(session: Session) -> None:
    made = ref(session.executor)
    session.executor.subscribe(lambda _: None)
    await session.update(added("b"), "more")
    assert made() is session.executor
    assert list(session.executor.catalog) == ["a", "page.draw", "b"]


async def test_a_plugins_own_result_is_the_callers_with_its_call_and_name(sessions: Sessions) -> None:
    session = (await sessions.create(T1)).session
    await session.register(registration("a"))
    own = ToolResult("forged", "forged", "text", structured={"x": 1}, metadata={"page": 2})
    async with serving(session, lambda _: own):
        assert await call(session, "a") == ToolResult("c1", "a", "text", structured={"x": 1}, metadata={"page": 2})
