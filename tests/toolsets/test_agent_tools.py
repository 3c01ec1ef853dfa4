"""Agents: what their allowlists let them see, under which names, and how at once that changes."""

from __future__ import annotations

import pytest
from tests.toolsets.desk import AGENT, READ, Desk, Files, Shop, run

from toolplug.catalog.catalog import CatalogDiff
from toolplug.errors import InvalidDefinition, ToolsetRefused
from toolplug.testing import check_executor
from toolplug.toolsets.agent_tools import Choice
from toolplug.toolsets.registered import Allowlist
from toolplug.toolsets.toolset import SharedSource, Toolset

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("ROUTE-goal-default-empty", "ROUTE-test-allowlist", "ROUTE-allowlist", "ROUTE-goal-code")
@pytest.mark.requirement("ROUTE-register-ref", "C-7-register-executor")
async def test_an_agent_has_no_tools_until_its_allowlist_names_a_toolset(desk: Desk) -> None:
    desk.share("fs", await desk.registry(files=Files()))
    agent = desk.agent()
    assert list(agent.catalog) == []
    assert (await run(agent, "fs.read")).output == "Toolset not found for fs.read"
    desk.allow("fs")
    assert list(agent.catalog) == ["fs.read"]
    assert (await run(agent, "fs.read")).output == "files"


@pytest.mark.requirement("C-7-allowlist-revoked")
async def test_revoking_a_toolset_acts_on_the_next_call_of_an_executor_in_use(desk: Desk) -> None:
    desk.share("fs", await desk.registry(files=Files()))
    desk.allow("fs")
    agent = desk.agent("session")
    heard: list[CatalogDiff] = []
    stop = agent.subscribe(heard.append)
    assert (await run(agent, "fs.read")).status == "success"
    desk.allow()
    assert (await run(agent, "fs.read")).status == "unknown_tool"
    stop()
    assert heard == [CatalogDiff(removed=("fs.read",))]


@pytest.mark.requirement("ROUTE-goal-prefix", "ROUTE-test-many", "ROUTE-test-route", "ROUTE-publish", "ROUTE-split")
@pytest.mark.requirement("ROUTE-strip", "C-7-full-name")
async def test_calls_go_by_prefix_to_the_toolset_which_gets_the_name_without_it(desk: Desk) -> None:
    desk.share("one", await desk.registry(files=Files("first")))
    desk.share("two", await desk.registry(files=Files("second")))
    desk.allow("two", "one")
    agent = desk.agent()
    assert list(agent.catalog) == ["two.read", "one.read"]
    results = [await run(agent, name) for name in ("one.read", "two.read", "two__read")]
    assert [(item.call_id, item.name, item.output) for item in results] == [
        ("c", "one.read", "first"),
        ("c", "two.read", "second"),
        ("c", "two__read", "second"),
    ]


@pytest.mark.requirement("ROUTE-unknown-prefix", "ROUTE-test-unknown", "ROUTE-fail-fast", "C-3-unknown-agent")
async def test_a_prefix_outside_the_allowlist_answers_like_one_that_exists_nowhere(desk: Desk) -> None:
    desk.share("one", await desk.registry(files=Files()))
    desk.share("two", await desk.registry(files=Files()))
    desk.allow("one")
    outputs = [
        (await run(desk.agent(), name)).output for name in ("two.read", "no.read", "one.write", "read", ".x", "one.")
    ]
    assert outputs == [
        "Toolset not found for two.read",
        "Toolset not found for no.read",
        'no builtin provider handles tool "one.write"',
        'no builtin provider handles tool "read"',
        "Toolset not found for .x",
        "Toolset not found for one.",
    ]


@pytest.mark.requirement("C-7-same-id-replaces")
async def test_registering_an_id_again_replaces_it_at_once(desk: Desk) -> None:
    desk.share("fs", await desk.registry(files=Files("old")))
    desk.allow("fs")
    agent = desk.agent()
    assert (await run(agent, "fs.read")).output == "old"
    desk.share("fs", await desk.registry(files=Files("new")), prefix="disk")
    assert list(agent.catalog) == ["disk.read"]
    assert (await run(agent, "disk.read")).output == "new"
    assert (await run(agent, "fs.read")).status == "unknown_tool"


@pytest.mark.requirement("C-7-prefix-error")
@pytest.mark.parametrize("prefix", ["", "a.b", "A", "1a", "a" * 33, "a\n", "é"])
async def test_a_prefix_that_is_dotted_empty_or_illegal_is_an_error(desk: Desk, prefix: str) -> None:
    with pytest.raises(InvalidDefinition, match="is no toolset prefix"):
        Toolset(id="fs", prefix=prefix, source=SharedSource(executor=await desk.registry()))


@pytest.mark.requirement("C-7-prefix-error")
async def test_a_prefix_that_another_toolset_has_is_an_error_and_changes_nothing(desk: Desk) -> None:
    registry = await desk.registry(files=Files())
    desk.share("fs", registry)
    before = desk.tools.toolsets
    with pytest.raises(ToolsetRefused, match="prefix 'fs' is that of toolset 'fs'"):
        desk.share("other", registry, prefix="fs")
    with pytest.raises(InvalidDefinition, match="is no toolset id"):
        desk.share("Other", registry, prefix="other")
    assert desk.tools.toolsets is before


@pytest.mark.requirement("C-7-allowlist-put")
async def test_a_tenants_own_allowlist_and_toolset_stand_over_everybodys_for_that_tenant_alone(desk: Desk) -> None:
    desk.share("fs", await desk.registry(files=Files("everybody's")))
    desk.allow("fs")
    mine = Choice("t1", "a")
    agent, others = desk.tools.executor(mine), desk.tools.executor(AGENT)
    own = Toolset(id="fs", prefix="mine", source=SharedSource(executor=await desk.registry(files=Files("own"))))
    desk.tools.change(
        toolsets=desk.tools.toolsets.with_own("t1", own),
        allowlists=desk.tools.allowlists.with_own({("t1", "b"): Allowlist(("fs",), "PUT")}),
    )
    assert (list(agent.catalog), list(others.catalog)) == (["mine.read"], ["fs.read"])
    assert list(desk.tools.executor(Choice("t1", "b")).catalog) == ["mine.read"]
    assert list(desk.tools.executor(Choice("default", "b")).catalog) == []


@pytest.mark.requirement("I4-num-verdicts")
async def test_tenants_with_the_same_allowlist_have_the_very_same_catalog(desk: Desk) -> None:
    desk.share("fs", await desk.registry(files=Files()))
    desk.make("tmp", Shop(), READ)
    desk.allow("fs", "tmp")
    catalogs = [desk.tools.executor(Choice(f"tenant {number}", "a")).catalog for number in range(100)]
    assert len({id(catalog) for catalog in catalogs}) == 1


async def test_an_executor_in_use_keeps_its_tools_however_many_combinations_are_asked_for(desk: Desk) -> None:
    for number in range(10):
        desk.share(f"fs{number}", await desk.registry(files=Files()))
    desk.allow("fs0", "fs1")
    agent = desk.agent()
    before = agent.catalog
    for number in range(1 << 10):
        ids = tuple(f"fs{bit}" for bit in range(10) if number >> bit & 1)
        assert len(desk.tools.executor(Choice("default", None, ids)).catalog) == len(ids)
    desk.allow("fs1", "fs0")
    assert (list(agent.catalog), list(before)) == (["fs1.read", "fs0.read"], ["fs0.read", "fs1.read"])


@pytest.mark.requirement("I4-laws")
async def test_an_agents_view_keeps_the_laws_of_every_executor(desk: Desk) -> None:
    desk.share("fs", await desk.registry(files=Files()))
    desk.share("more", await desk.registry(files=Files()))
    desk.make("own", Shop(), READ)
    desk.allow("fs", "own")

    async def allow_more() -> None:
        desk.allow("more", "own", "fs")

    for agent in (desk.agent(), desk.agent("session")):
        desk.allow("fs", "own")
        await check_executor(agent, calls={"fs.read": {}, "own.read": {}}, change=allow_more)


async def test_the_toolsets_of_given_ids_follow_registrations_too(desk: Desk) -> None:
    chosen = desk.tools.executor(Choice("default", None, ("fs", "nothing")))
    assert list(chosen.catalog) == []
    desk.share("fs", await desk.registry(files=Files()))
    assert list(chosen.catalog) == ["fs.read"]
