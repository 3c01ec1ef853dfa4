"""A request that asks for some of its agent's toolsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package
from tests.host.test_toolsets import ADMIN, FILE, NOTES, run
from tests.toolsets.harness import READ, Shop

from toolplug import CallContext, Principal, open_host
from toolplug.testing.executor_laws import check_executor

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("notes")]

Write = Callable[[str], Path]
REFUSED = 'tool "{}" is not allowed: request: its toolset is not among those that the request asks for'


@pytest.fixture
def notes(package: Package) -> None:
    package("toolplug-notes", {"notes": "notes_mod:Notes"}, notes_mod=NOTES)


@pytest.mark.requirement("C-7-request-filter-empty", "C-7-intersection")
@pytest.mark.parametrize("nothing", [None, [], ()])
async def test_a_filter_of_nothing_is_no_filter(config: Write, nothing: list[str] | None) -> None:
    async with open_host(config(FILE), environ={}) as host:
        whole = host.executor_for(ADMIN, agent="researcher")
        assert host.executor_for(ADMIN, agent="researcher", toolsets=nothing).catalog is whole.catalog


@pytest.mark.requirement("C-7-intersection", "C-3-denied")
async def test_what_only_the_request_leaves_out_is_not_listed_and_refused(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        agent = host.executor_for(ADMIN, agent="researcher", toolsets=["one", "nowhere"])
        assert list(agent.catalog) == ["first.read", "first.fail"]
        assert not agent.can_execute("second.read")
        for name in ("second.read", "second__read"):
            refused = await run(agent, name)
            assert (refused.status, refused.output) == ("denied", REFUSED.format(name))
        hidden = await run(agent, "second.fail")
        assert (hidden.status, (await run(agent, "first.read")).output) == ("unknown_tool", "notes")
        writer = host.executor_for(ADMIN, agent="writer", toolsets=["two"])
        assert (list(writer.catalog), (await run(writer, "first.read")).status) == ([], "denied")
        assert (await run(writer, "second.read")).output == "Toolset not found for second.read"


@pytest.mark.requirement("C-7-intersection")
async def test_tools_that_are_in_no_toolset_pass_no_filter_but_for_the_sessions_own(config: Write) -> None:
    async with open_host(config(f"{FILE}\n    sessions: {{default_toolset: one}}"), environ={}) as host:
        bare = host.executor_for(ADMIN, toolsets=["one"])
        assert (list(bare.catalog), (await run(bare, "read")).status) == ([], "denied")
        code = (await host.sessions.create(ADMIN)).session.code
        assert list(host.executor_for(ADMIN, session=code, toolsets=["two"]).catalog) == ["first.read", "first.fail"]


@pytest.mark.requirement("C-7-intersection", "C-7-allowlist-revoked")
async def test_revocation_and_registration_act_on_a_filtered_executor(config: Write) -> None:
    async with open_host(config(FILE), environ={}) as host:
        agent = host.executor_for(ADMIN, agent="researcher", toolsets=["two"])
        await host.toolsets.allow("researcher", ("one",), by=ADMIN, request_id="r")
        assert (list(agent.catalog), (await run(agent, "second.read")).status) == ([], "unknown_tool")
        await host.toolsets.allow("researcher", ("two",), by=ADMIN, request_id="r")
        assert (await run(agent, "second.read")).output == "more"


@pytest.mark.requirement("C-7-intersection", "C-7-listing-starts-nothing")
async def test_a_toolset_that_is_left_out_is_not_opened(config: Write) -> None:
    shop, later = Shop(), Shop()
    async with open_host(config(FILE), environ={}) as host:
        host.register_toolset("own", "own", shop, READ)
        host.register_toolset("later", "later", later)
        await host.toolsets.allow("writer", ("own", "later", "one"), by=ADMIN, request_id="r")
        agent = host.executor_for(ADMIN, agent="writer", toolsets=["one"])
        statuses = [(await run(agent, name)).status for name in ("own.read", "later.read", "first.read")]
        assert statuses == ["denied", "unknown_tool", "success"]
        listed = await host.catalog_for(ADMIN, agent="writer", toolsets=["one"])
        assert (list(listed), shop.made, later.made) == (["first.read", "first.fail"], [], [])


@pytest.mark.requirement("I4-laws")
async def test_a_filtered_executor_keeps_the_laws(config: Write) -> None:
    one = Principal(tenant="t1", scopes=ADMIN.scopes)
    async with open_host(config(FILE), environ={}) as host:

        async def change() -> None:
            await host.disable("more", by=ADMIN)

        agent = host.executor_for(one, agent="researcher", toolsets=["two"])
        await check_executor(agent, calls={"second.read": {}}, change=change, context=CallContext(principal=one))
