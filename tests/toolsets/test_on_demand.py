"""Toolsets whose executors list at once and start what they need at their first call."""

from __future__ import annotations

import pytest
from tests.toolsets.harness import AGENT, Files, Harness, run, settled

from toolplug import FunctionRegistry
from toolplug.catalog.catalog import Catalog
from toolplug.execution.live import LiveCatalog
from toolplug.execution.resolved_limits import LimitLevel, Limits
from toolplug.toolsets.toolset import OnDemand, Toolset

pytestmark = pytest.mark.anyio


class Own(LiveCatalog):
    """One session's executor: the tools of a registry, and how often it was closed."""

    def __init__(self, harness: Harness, tools: Catalog, *, fails: bool = False) -> None:
        super().__init__(harness.accounting.counters("_unknown", "_unknown"), tools)
        self._fails = fails
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        if self._fails:
            raise RuntimeError("cannot be closed")


class Maker:
    """Makes executors over registries that answer with their number; `lone` answers with 0."""

    def __init__(self, harness: Harness) -> None:
        self._desk = harness
        self.registries: list[FunctionRegistry] = []
        self.made: list[Own] = []
        self.fails = False

    async def ready(self, count: int) -> None:
        self.registries = [await self._desk.registry(files=Files(f"files {n}")) for n in range(count + 1)]

    def __call__(self) -> Own:
        self.made.append(Own(self._desk, self.registries[len(self.made) + 1].catalog, fails=self.fails))
        return self.made[-1]

    @property
    def closed(self) -> list[int]:
        return [item.closed for item in self.made]


@pytest.fixture
async def maker(harness: Harness) -> Maker:
    made = Maker(harness)
    await made.ready(3)
    register(harness, made)
    harness.allow("fs")
    return made


def register(harness: Harness, maker: Maker, limits: LimitLevel | None = None) -> None:
    source = OnDemand(lone=maker.registries[0], make=maker)
    toolset = Toolset(id="fs", prefix="fs", source=source, limits=limits)
    harness.tools.change(toolsets=harness.tools.toolsets.with_coded(toolset))


@pytest.mark.requirement("ROUTE-goal-mcp")
async def test_each_session_has_one_executor_and_callers_without_one_share_the_lone_one(
    harness: Harness, maker: Maker
) -> None:
    agents = [harness.agent("one"), harness.agent("two"), harness.agent("one"), harness.agent()]
    assert [list(agent.catalog) for agent in agents] == [["fs.read"]] * 4
    outputs = [(await run(agent, "fs.read")).output for agent in agents]
    assert outputs == ["files 1", "files 2", "files 1", "files 0"]
    assert len(maker.made) == 2


@pytest.mark.requirement("ROUTE-stop-own")
async def test_a_sessions_executor_is_closed_once_with_its_session(harness: Harness, maker: Maker) -> None:
    one, two = harness.agent("one"), harness.agent("two")
    await harness.tools.close("one")
    await harness.tools.close("one")
    assert maker.closed == [1, 0]
    assert list(one.catalog) == []
    assert (await run(one, "fs.read")).status == "unknown_tool"
    assert (await run(two, "fs.read")).output == "files 2"
    await harness.tools.aclose()
    assert maker.closed == [1, 1]


async def test_an_executor_that_cannot_be_closed_keeps_no_other_from_being_closed(
    harness: Harness, maker: Maker
) -> None:
    maker.fails = True
    agents = [harness.agent("one"), harness.agent("two")]
    await harness.tools.aclose()
    assert maker.closed == [1, 1]
    assert [list(agent.catalog) for agent in agents] == [[], []]


async def test_what_a_sessions_executor_lists_later_is_seen_by_that_session_alone(
    harness: Harness, maker: Maker
) -> None:
    one, two = harness.agent("one"), harness.agent("two")
    maker.made[0].publish(Catalog())
    assert (list(one.catalog), list(two.catalog)) == ([], ["fs.read"])


async def test_the_toolsets_limits_hold_for_every_session_together(harness: Harness, maker: Maker) -> None:
    limits = LimitLevel(("toolset", "fs"), Limits.model_validate({"rate": "2/minute"}), lambda name: "here")
    register(harness, maker, limits)
    statuses = [(await run(harness.agent(session), "fs.read")).status for session in ("one", "two", None)]
    assert statuses == ["success", "success", "limited"]


async def test_replacing_the_toolset_closes_what_its_sessions_had(harness: Harness, maker: Maker) -> None:
    agent = harness.agent("one")
    register(harness, maker)
    await settled()
    assert maker.closed == [1, 0]
    assert (await run(agent, "fs.read")).output == "files 2"


async def test_nothing_has_to_be_opened_before_it_is_listed(harness: Harness, maker: Maker) -> None:
    agent = harness.agent("one")
    assert not harness.tools.some_wait
    assert not harness.tools.waits(AGENT, "one")
    assert list(await agent.open_catalog()) == ["fs.read"]
