"""The view of a session: what everybody has and then its own, and every call is one of this session."""

from __future__ import annotations

import pytest
from tests.execution.harness import Harness, defined

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.plan import Plan, Tool
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.run import UnknownCalls
from toolplug.hookspecs import hookimpl

pytestmark = pytest.mark.anyio

MINE = "MINE2345"
ALICE = Principal(subject="alice", tenant="t1")
CONTEXTS = [CallContext(), CallContext(session=MINE), CallContext(session="OTHER234")]


async def whose(call: ToolCall, context: CallContext) -> str:
    return str(context.session)


class Looks:
    """A plugin and a memory of replays that look at the session of the call."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []

    @hookimpl
    def before_call(self, context: CallContext) -> None:
        self.seen.append(context.session)

    @hookimpl
    async def after_call(self, context: CallContext) -> None:
        self.seen.append(context.session)

    async def begin(self, plan: Plan, call: ToolCall, context: CallContext, seconds: float) -> ToolResult | None:
        self.seen.append(context.session)
        return None

    async def finish(self, plan: Plan, context: CallContext, result: ToolResult | None) -> None:
        self.seen.append(context.session)


def of(harness: Harness, name: str, **rules: object) -> Tool:
    return Tool(defined(name), harness.plan(whose, name=name, **rules))


def session_view(harness: Harness, *tools: Tool) -> LiveCatalog:
    return MergedExecutor(
        UnknownCalls(harness.counters),
        LiveCatalog(UnknownCalls(harness.counters), Catalog(tools)),
        LiveCatalog(UnknownCalls(harness.counters)),
        session=MINE,
    )


@pytest.mark.requirement("I3-session-view")
@pytest.mark.parametrize("context", CONTEXTS)
async def test_the_executor_says_whose_session_a_call_belongs_to_and_never_its_caller(
    harness: Harness, context: CallContext
) -> None:
    base = LiveCatalog(UnknownCalls(harness.counters), Catalog([of(harness, "shared")]))
    own = LiveCatalog(UnknownCalls(harness.counters), Catalog([of(harness, "own")]))
    view = MergedExecutor(UnknownCalls(harness.counters), base, own, session=MINE)
    nested = view.view(lambda catalog: catalog.prefixed("p")).view(lambda catalog: catalog.where(lambda _: True))

    for executor, names in ((view, ("shared", "own")), (nested, ("p.shared", "p__own"))):
        for name in names:
            assert (await executor.execute(ToolCall("c1", name), context)).output == MINE
    assert (await base.execute(ToolCall("c1", "shared"), context)).output == str(context.session)
    assert (
        await MergedExecutor(UnknownCalls(harness.counters), base).execute(ToolCall("c1", "shared"), context)
    ).output == str(context.session)


@pytest.mark.requirement("I3-session-view")
async def test_all_else_in_the_context_is_as_the_caller_gave_it(harness: Harness) -> None:
    seen: list[CallContext] = []

    async def look(call: ToolCall, context: CallContext) -> None:
        seen.append(context)

    view = session_view(harness, Tool(defined("look"), harness.plan(look, name="look")))
    given = CallContext(principal=ALICE, agent="a", options={"k": 1}, approval="ok", request_id="r1", report=print)
    await view.execute(ToolCall("c1", "look"), given)
    assert [context._replace(deadline=None) for context in seen] == [given._replace(session=MINE)]


@pytest.mark.requirement("I3-session-view")
@pytest.mark.parametrize("context", CONTEXTS)
async def test_what_stands_around_a_tool_sees_the_session_too(harness: Harness, context: CallContext) -> None:
    looks = Looks()
    hooked = of(harness, "hooked", wants_context=False, hooks=harness.hooks(looks))
    kept = of(harness, "kept", wants_context=False, replay=looks)
    view = session_view(harness, hooked, kept)
    await view.execute(ToolCall("c1", "hooked"), context)
    await view.execute(ToolCall("c1", "kept"), context._replace(idempotency_key="k1"))
    assert looks.seen == [MINE] * 4


@pytest.mark.requirement("I3-session-view", "C-6-no-shadow", "C-6-late-provider")
async def test_a_sessions_tool_is_hidden_while_everybody_has_one_of_its_name(harness: Harness) -> None:
    base, own = (
        LiveCatalog(UnknownCalls(harness.counters)),
        LiveCatalog(UnknownCalls(harness.counters), Catalog([of(harness, "a"), of(harness, "b")])),
    )
    view = MergedExecutor(UnknownCalls(harness.counters), base, own, session=MINE)
    shared = of(harness, "a")
    base.publish(Catalog([shared]))
    assert list(view.catalog.values()) == [shared, own.catalog["b"]]
    assert view.catalog["a"] is shared
    base.publish(Catalog())
    assert view.catalog is own.catalog


@pytest.mark.requirement("I3-session-view", "DESIGN-next-call")
async def test_one_change_of_what_everybody_has_reaches_every_session_at_its_next_call(harness: Harness) -> None:
    base = LiveCatalog(UnknownCalls(harness.counters))
    views = [
        MergedExecutor(
            UnknownCalls(harness.counters),
            base.view(lambda catalog: catalog.visible_to(ALICE)),
            LiveCatalog(UnknownCalls(harness.counters), Catalog([of(harness, f"own{at}")])),
            session=f"S{at}",
        )
        for at in range(50)
    ]
    for names in (["a"], ["a", "b"], []):
        base.publish(Catalog(of(harness, name) for name in names))
        assert [list(view.catalog) for view in views[::2]] == [[*names, f"own{at}"] for at in range(0, 50, 2)]
    assert [view.can_execute("a") for view in views] == [False] * 50
