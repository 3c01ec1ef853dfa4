"""Agents: what their allowlists let them see, under which names, and how at once that changes."""

from __future__ import annotations

import pytest
from tests.toolsets.harness import AGENT, READ, Files, Harness, Shop, run

from toolplug.catalog.catalog import CatalogDiff
from toolplug.errors import ApiError, InvalidDefinition
from toolplug.testing.executor_laws import check_executor
from toolplug.toolsets.agent_tools import Choice
from toolplug.toolsets.registered import Allowlist
from toolplug.toolsets.toolset import SharedSource, Toolset

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("ROUTE-goal-default-empty", "ROUTE-test-allowlist", "ROUTE-allowlist", "ROUTE-goal-code")
@pytest.mark.requirement("ROUTE-register-ref", "C-7-register-executor")
async def test_an_agent_has_no_tools_until_its_allowlist_names_a_toolset(harness: Harness) -> None:
    harness.share("fs", await harness.registry(files=Files()))
    agent = harness.agent()
    assert list(agent.catalog) == []
    assert (await run(agent, "fs.read")).output == "Toolset not found for fs.read"
    harness.allow("fs")
    assert list(agent.catalog) == ["fs.read"]
    assert (await run(agent, "fs.read")).output == "files"


@pytest.mark.requirement("C-7-allowlist-revoked")
async def test_revoking_a_toolset_acts_on_the_next_call_of_an_executor_in_use(harness: Harness) -> None:
    harness.share("fs", await harness.registry(files=Files()))
    harness.allow("fs")
    agent = harness.agent("session")
    heard: list[CatalogDiff] = []
    stop = agent.subscribe(heard.append)
    assert (await run(agent, "fs.read")).status == "success"
    harness.allow()
    assert (await run(agent, "fs.read")).status == "unknown_tool"
    stop()
    assert heard == [CatalogDiff(removed=("fs.read",))]


@pytest.mark.requirement("ROUTE-goal-prefix", "ROUTE-test-many", "ROUTE-test-route", "ROUTE-publish", "ROUTE-split")
@pytest.mark.requirement("ROUTE-strip", "C-7-full-name")
async def test_calls_go_by_prefix_to_the_toolset_which_gets_the_name_without_it(harness: Harness) -> None:
    harness.share("one", await harness.registry(files=Files("first")))
    harness.share("two", await harness.registry(files=Files("second")))
    harness.allow("two", "one")
    agent = harness.agent()
    assert list(agent.catalog) == ["two.read", "one.read"]
    results = [await run(agent, name) for name in ("one.read", "two.read", "two__read")]
    assert [(item.call_id, item.name, item.output) for item in results] == [
        ("c", "one.read", "first"),
        ("c", "two.read", "second"),
        ("c", "two__read", "second"),
    ]


@pytest.mark.requirement("ROUTE-unknown-prefix", "ROUTE-test-unknown", "ROUTE-fail-fast", "C-3-unknown-agent")
async def test_a_prefix_outside_the_allowlist_answers_like_one_that_exists_nowhere(harness: Harness) -> None:
    harness.share("one", await harness.registry(files=Files()))
    harness.share("two", await harness.registry(files=Files()))
    harness.allow("one")
    outputs = [
        (await run(harness.agent(), name)).output for name in ("two.read", "no.read", "one.write", "read", ".x", "one.")
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
async def test_registering_an_id_again_replaces_it_at_once(harness: Harness) -> None:
    harness.share("fs", await harness.registry(files=Files("old")))
    harness.allow("fs")
    agent = harness.agent()
    assert (await run(agent, "fs.read")).output == "old"
    harness.share("fs", await harness.registry(files=Files("new")), prefix="disk")
    assert list(agent.catalog) == ["disk.read"]
    assert (await run(agent, "disk.read")).output == "new"
    assert (await run(agent, "fs.read")).status == "unknown_tool"


@pytest.mark.requirement("C-7-prefix-error")
@pytest.mark.parametrize("prefix", ["", "a.b", "A", "1a", "a" * 33, "a\n", "é"])
async def test_a_prefix_that_is_dotted_empty_or_illegal_is_an_error(harness: Harness, prefix: str) -> None:
    with pytest.raises(InvalidDefinition, match="is no toolset prefix"):
        Toolset(id="fs", prefix=prefix, source=SharedSource(executor=await harness.registry()))


@pytest.mark.requirement("C-7-prefix-error")
async def test_a_prefix_that_another_toolset_has_is_an_error_and_changes_nothing(harness: Harness) -> None:
    registry = await harness.registry(files=Files())
    harness.share("fs", registry)
    before = harness.tools.toolsets
    with pytest.raises(ApiError, match="prefix 'fs' is that of toolset 'fs'"):
        harness.share("other", registry, prefix="fs")
    with pytest.raises(InvalidDefinition, match="is no toolset id"):
        harness.share("Other", registry, prefix="other")
    assert harness.tools.toolsets is before


@pytest.mark.requirement("C-7-allowlist-put")
async def test_a_tenants_own_allowlist_and_toolset_stand_over_everybodys_for_that_tenant_alone(
    harness: Harness,
) -> None:
    harness.share("fs", await harness.registry(files=Files("everybody's")))
    harness.allow("fs")
    mine = Choice("t1", "a")
    agent, others = harness.tools.executor(mine), harness.tools.executor(AGENT)
    own = Toolset(id="fs", prefix="mine", source=SharedSource(executor=await harness.registry(files=Files("own"))))
    harness.tools.change(
        toolsets=harness.tools.toolsets.with_own("t1", own),
        allowlists=harness.tools.allowlists.with_own({("t1", "b"): Allowlist(("fs",), "PUT")}),
    )
    assert (list(agent.catalog), list(others.catalog)) == (["mine.read"], ["fs.read"])
    assert list(harness.tools.executor(Choice("t1", "b")).catalog) == ["mine.read"]
    assert list(harness.tools.executor(Choice("default", "b")).catalog) == []


@pytest.mark.requirement("I4-num-verdicts")
async def test_tenants_with_the_same_allowlist_have_the_very_same_catalog(harness: Harness) -> None:
    harness.share("fs", await harness.registry(files=Files()))
    harness.make("tmp", Shop(), READ)
    harness.allow("fs", "tmp")
    catalogs = [harness.tools.executor(Choice(f"tenant {number}", "a")).catalog for number in range(100)]
    assert len({id(catalog) for catalog in catalogs}) == 1


async def test_an_executor_in_use_keeps_its_tools_however_many_combinations_are_asked_for(harness: Harness) -> None:
    for number in range(10):
        harness.share(f"fs{number}", await harness.registry(files=Files()))
    harness.allow("fs0", "fs1")
    agent = harness.agent()
    before = agent.catalog
    for number in range(1 << 10):
        ids = tuple(f"fs{bit}" for bit in range(10) if number >> bit & 1)
        assert len(harness.tools.executor(Choice("default", None, ids)).catalog) == len(ids)
    harness.allow("fs1", "fs0")
    assert (list(agent.catalog), list(before)) == (["fs1.read", "fs0.read"], ["fs0.read", "fs1.read"])


@pytest.mark.requirement("I4-laws")
async def test_an_agents_view_keeps_the_laws_of_every_executor(harness: Harness) -> None:
    harness.share("fs", await harness.registry(files=Files()))
    harness.share("more", await harness.registry(files=Files()))
    harness.make("own", Shop(), READ)
    harness.allow("fs", "own")

    async def allow_more() -> None:
        harness.allow("more", "own", "fs")

    for agent in (harness.agent(), harness.agent("session")):
        harness.allow("fs", "own")
        await check_executor(agent, calls={"fs.read": {}, "own.read": {}}, change=allow_more)


async def test_the_toolsets_of_given_ids_follow_registrations_too(harness: Harness) -> None:
    chosen = harness.tools.executor(Choice("default", None, ("fs", "nothing")))
    assert list(chosen.catalog) == []
    harness.share("fs", await harness.registry(files=Files()))
    assert list(chosen.catalog) == ["fs.read"]
