"""Toolsets whose factory runs once for each session: when it runs, what fails alone, and how often its end comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.toolsets.harness import READ, Files, Harness, Shop, run, settled

from toolplug import CallContext, FunctionRegistry, ToolCall
from toolplug.toolsets.toolset import NotOpened, Opened

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("C-7-register-factory", "C-7-listing-starts-nothing", "C-7-factory-once", "ROUTE-goal-scope")
@pytest.mark.requirement("ROUTE-register-factory", "ROUTE-session-factory", "ROUTE-test-factory", "ROUTE-stop-own")
async def test_a_factory_with_declared_tools_runs_at_the_first_call_and_once_a_session(harness: Harness) -> None:
    shop = Shop()
    harness.make("fs", shop, READ)
    harness.allow("fs")
    one, other = harness.agent("one"), harness.agent("other")
    assert list(one.catalog) == list(await other.open_catalog()) == ["fs.read"]
    assert shop.made == []
    outputs = [(await run(agent, "fs.read")).output for agent in (one, one, other, harness.agent("one"))]
    assert outputs == ["files 1", "files 1", "files 2", "files 1"]
    await harness.tools.close("one")
    assert shop.closed == [1, 0]
    assert ((await run(one, "fs.read")).status, len(one.catalog)) == ("unknown_tool", 0)
    await harness.tools.close("one")
    await harness.tools.aclose()
    assert shop.closed == [1, 1]


@pytest.mark.requirement("ROUTE-stop-own", "ROUTE-register-ref")
async def test_a_shared_executor_goes_on_after_a_session_that_used_it(harness: Harness) -> None:
    files, shop = Files(), Shop()
    harness.share("all", await harness.registry(files=files))
    harness.make("own", shop, READ)
    harness.allow("all", "own")
    one, other = harness.agent("one"), harness.agent("other")
    assert [(await run(one, name)).output for name in ("all.read", "own.read")] == ["files", "files 1"]
    await harness.tools.close("one")
    assert (files.closed, shop.closed) == (0, [1])
    assert (await run(other, "all.read")).output == "files"
    await harness.tools.aclose()
    assert files.closed == 0


@pytest.mark.requirement("C-7-first-use-opens")
async def test_without_declared_tools_the_first_call_or_listing_opens_the_factory(harness: Harness) -> None:
    shop = Shop()
    harness.make("fs", shop)
    harness.allow("fs")
    called, listed = harness.agent("called"), harness.agent("listed")
    assert (list(called.catalog), shop.made) == ([], [])
    assert (await run(called, "read")).status == "unknown_tool"
    assert shop.made == []
    assert (await run(called, "fs.read")).output == "files 1"
    assert list(called.catalog) == list(await listed.open_catalog()) == ["fs.read"]
    assert (await run(listed, "fs__read")).output == "files 2"
    assert len(shop.made) == 2


@pytest.mark.requirement("C-7-factory-once", "ROUTE-stop-own")
async def test_an_executor_that_is_held_past_the_end_of_its_session_opens_nothing(harness: Harness) -> None:
    shop = Shop()
    harness.make("fs", shop)
    harness.allow("fs")
    agent = harness.agent("session")
    assert (await run(agent, "fs.read")).output == "files 1"
    await harness.tools.close("session")
    assert (await run(agent, "fs.read")).status == "unknown_tool"
    assert list(await agent.open_catalog()) == []
    harness.allow("fs")
    assert ((await run(agent, "fs.read")).status, shop.closed) == ("unknown_tool", [1])


@pytest.mark.requirement("C-7-factory-once", "I4-bad-factory")
async def test_who_waits_for_a_factory_is_answered_when_it_is_closed_before_it_began() -> None:
    opened = Opened("slow", hangs)
    waiting = asyncio.create_task(opened.executor())
    await asyncio.sleep(0)
    await opened.aclose()
    with pytest.raises(NotOpened):
        await waiting


@pytest.mark.requirement("C-7-no-session")
@pytest.mark.parametrize("tools", [READ, None])
async def test_without_a_session_each_call_has_an_executor_of_its_own(harness: Harness, tools: None) -> None:
    shop = Shop()
    harness.make("fs", shop, tools)
    harness.allow("fs")
    agent = harness.agent()
    assert [(await run(agent, "fs.read")).output for _ in range(2)] == ["files 1", "files 2"]
    assert shop.closed == [1, 1]
    assert list(await agent.open_catalog()) == ["fs.read"]
    assert shop.closed == ([1, 1] if tools else [1, 1, 1])


def raises() -> FunctionRegistry:
    raise SystemExit("a factory raises")


async def hangs() -> FunctionRegistry:
    await asyncio.Event().wait()
    raise AssertionError("it never ends")


async def cancels() -> FunctionRegistry:
    raise asyncio.CancelledError


@pytest.mark.requirement("C-7-factory-raises", "I4-bad-factory")
@pytest.mark.parametrize("factory", [raises, cancels, Files])
async def test_a_factory_that_raises_or_makes_no_executor_loses_only_its_own_toolset(
    harness: Harness, factory: Callable[[], FunctionRegistry]
) -> None:
    harness.make("bad", factory, READ)
    harness.make("worse", factory)
    harness.make("good", Shop(), READ)
    harness.allow("bad", "worse", "good")
    for agent in (harness.agent("session"), harness.agent()):
        said = await run(agent, "bad.read")
        assert (said.status, said.output) == (
            "unavailable",
            "tool \"bad.read\" is unavailable: toolset 'bad' could not be opened",
        )
        assert (await run(agent, "worse.read")).output == 'no builtin provider handles tool "worse.read"'
        assert list(await agent.open_catalog()) == ["bad.read", "good.read"]
        assert (await run(agent, "good.read")).status == "success"


@pytest.mark.requirement("C-7-factory-raises", "I4-bad-factory")
async def test_a_factory_that_hangs_holds_a_call_no_longer_than_its_deadline(harness: Harness) -> None:
    harness.make("slow", hangs, READ)
    harness.make("slower", hangs)
    harness.make("good", Shop(), READ)
    harness.allow("slow", "slower", "good")
    agent = harness.agent("session")
    now = asyncio.get_running_loop().time()
    for name in ("slow.read", "slower.read"):
        late = await agent.execute(ToolCall("c", name), CallContext(deadline=now + 0.01))
        assert late.status == "timeout"
    assert (await run(agent, "good.read")).output == "files 1"


async def test_a_factory_that_hangs_is_given_up_after_its_time() -> None:
    opened = Opened("slow", hangs, open_s=0.01)
    for _ in range(2):
        with pytest.raises(NotOpened):
            await opened.executor()
    await opened.aclose()


@pytest.mark.requirement("C-7-factory-once", "I4-bad-factory")
async def test_what_a_factory_gives_is_closed_once_by_its_own_way_to_end() -> None:
    ends: list[str] = []

    @asynccontextmanager
    async def entered() -> AsyncGenerator[FunctionRegistry]:
        async with asyncio.timeout(60):
            yield FunctionRegistry()
        ends.append("left")

    async def awaited() -> object:
        return Plain()

    class Plain:
        """An executor that is closed by `aclose`."""

        def __init__(self) -> None:
            inner = FunctionRegistry()
            self.can_execute, self.execute, self.subscribe = inner.can_execute, inner.execute, inner.subscribe
            self.catalog = inner.catalog

        async def aclose(self) -> None:
            ends.append("closed")

    for factory in (entered, awaited, Plain):
        opened = Opened("any", factory)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await asyncio.gather(opened.executor(), opened.executor())
        await asyncio.gather(opened.aclose(), opened.aclose())
        with pytest.raises(NotOpened):
            await opened.executor()
    assert ends == ["left", "closed", "closed"]


async def test_an_end_that_raises_or_hangs_keeps_nobody(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    freed = asyncio.Event()

    @asynccontextmanager
    async def hanging() -> AsyncGenerator[FunctionRegistry]:
        yield FunctionRegistry()
        await freed.wait()

    @asynccontextmanager
    async def raising() -> AsyncGenerator[FunctionRegistry]:
        yield FunctionRegistry()
        raise SystemExit

    for factory, close_s in ((hanging, 0.01), (raising, 60)):
        opened = Opened("any", factory, close_s=close_s)
        await opened.executor()
        await opened.aclose()
    await settled()
    assert "has not closed after 0.01 s" in caplog.text
    assert "its factory or its end raised SystemExit" in caplog.text


@pytest.mark.requirement("C-7-same-id-replaces", "C-7-factory-once")
async def test_replacing_a_toolset_closes_what_sessions_had_opened_of_it(harness: Harness) -> None:
    old, new = Shop(), Shop()
    harness.make("fs", old, READ)
    harness.allow("fs")
    agent = harness.agent("session")
    await run(agent, "fs.read")
    harness.make("fs", new, READ)
    assert (await run(agent, "fs.read")).output == "files 1"
    await settled()
    assert (old.closed, new.closed) == ([1], [0])


@pytest.mark.requirement("C-7-shared-not-closed", "ROUTE-goal-scope", "ROUTE-test-ref", "ROUTE-session-ref")
async def test_a_shared_executor_outlives_every_session(harness: Harness) -> None:
    files = Files()
    harness.share("fs", await harness.registry(files=files))
    harness.allow("fs")
    for session in ("one", "other"):
        assert (await run(harness.agent(session), "fs.read")).output == "files"
        await harness.tools.close(session)
    assert files.closed == 0


@pytest.mark.requirement("C-7-factory-once")
async def test_calls_at_once_share_one_run_of_the_factory(harness: Harness) -> None:
    for tools in (READ, None):
        shop = Shop()
        harness.make("fs", shop, tools)
        harness.allow("fs")
        agent = harness.agent(f"session {tools}")
        results = await asyncio.gather(*(run(agent, "fs.read") for _ in range(5)))
        assert {item.output for item in results} == {"files 1"}
