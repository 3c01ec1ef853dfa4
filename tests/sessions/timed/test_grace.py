"""A plugin that is there, may come back, or is gone, and what is listed meanwhile."""

from __future__ import annotations

import pytest
from tests.sessions.fixtures import T1, added, attached, call, listed, listening, opened, registration, serving, turns
from tests.virtual_time import pass_time

from toolplug.catalog.call import ToolStatus
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.stores.store import Store

pytestmark = pytest.mark.anyio

GRACE_S = 30.0
GONE = {"a": (False, "plugin_gone")}
THERE = {"a": (True, None)}


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    return (await sessions.create(T1)).session


@pytest.mark.requirement("C-6-grace", "C-6-detached", "DYN-UX-live", "DYN-US-register")
async def test_the_grace_time_runs_from_the_registration(session: Session) -> None:
    assert session.plugin_status == "detached"
    await session.register(registration("a"))
    executor = session.executor
    await pass_time(GRACE_S - 0.1)
    assert (session.plugin_status, listed(session), list(executor.catalog)) == ("waiting", THERE, ["a"])
    await pass_time(0.2)
    assert (session.plugin_status, listed(session), list(executor.catalog)) == ("detached", GONE, [])
    assert executor.catalog.unavailable is not None
    assert list(executor.catalog.unavailable) == ["a"]
    assert not executor.can_execute("a")
    assert (await call(session, "a")).status is ToolStatus.UNAVAILABLE
    assert (await call(session, "b")).status is ToolStatus.UNKNOWN_TOOL


@pytest.mark.requirement("C-6-grace", "C-6-detached")
async def test_the_grace_time_runs_from_the_end_of_the_last_stream(session: Session) -> None:
    await session.register(registration("a"))
    async with attached(session):
        async with attached(session):
            await pass_time(2 * GRACE_S)
        await pass_time(2 * GRACE_S)
        assert (session.plugin_status, listed(session)) == ("attached", THERE)
    assert (session.plugin_status, listed(session)) == ("waiting", THERE)
    await pass_time(GRACE_S - 0.1)
    assert session.plugin_status == "waiting"
    await pass_time(0.2)
    assert (session.plugin_status, listed(session)) == ("detached", GONE)


@pytest.mark.requirement("C-6-detached", "DYN-UX-live")
async def test_a_plugin_that_comes_back_brings_its_tools_back(session: Session) -> None:
    await session.register(registration("a"))
    heard: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    executor = session.executor
    executor.subscribe(lambda diff: heard.append((diff.added, diff.removed)))
    await pass_time(GRACE_S + 1)
    async with serving(session, lambda _: "here again"):
        assert (await call(session, "a")).output == "here again"
        assert listed(session) == THERE
    assert heard == [((), ("a",)), (("a",), ())]


@pytest.mark.requirement("C-6-grace")
async def test_a_registration_gives_a_plugin_that_was_gone_the_grace_time_again(session: Session) -> None:
    await session.register(registration("a"))
    await pass_time(GRACE_S + 1)
    await session.register(registration("a"))
    assert (session.plugin_status, listed(session), list(session.executor.catalog)) == ("waiting", THERE, ["a"])
    await pass_time(GRACE_S - 1)
    await session.register(registration("a"))
    await pass_time(GRACE_S - 1)
    assert session.plugin_status == "waiting"
    await pass_time(2)
    assert session.plugin_status == "detached"


async def test_an_update_of_a_plugin_that_is_gone_is_kept_for_its_return(session: Session) -> None:
    await session.register(registration("a"))
    await pass_time(GRACE_S + 1)
    await session.update(added("b"), "while away")
    assert listed(session) == GONE | {"b": (False, "plugin_gone")}
    assert list(session.executor.catalog) == []
    async with attached(session):
        assert list(session.executor.catalog) == ["a", "b"]


@pytest.mark.requirement("C-6-stream-roles", "DYN-UX-live")
async def test_every_stream_hears_of_the_plugins_coming_and_going_once(session: Session) -> None:
    await session.register(registration("a"))
    async with listening(session) as client:
        assert client.of("connected")[0]["pluginStatus"] == "waiting"
        async with attached(session), attached(session):
            assert (await client.hear_until("plugin-status"))["status"] == "attached"
        async with attached(session):
            await turns()
        await pass_time(GRACE_S + 1)
        async with attached(session):
            await client.hear_until("plugin-status", 3)
        said = [(event["sessionCode"], event["status"]) for event in client.of("plugin-status")]
        assert said == [(session.code, status) for status in ("attached", "detached", "attached")]


@pytest.mark.requirement("C-6-metadata-first")
async def test_metadata_shows_what_a_status_event_says(session: Session) -> None:
    await session.register(registration("a"))
    async with listening(session) as client:
        async with attached(session):
            await client.hear_until("plugin-status")
            assert session.plugin_status == "attached"
        await client.hear_until("plugin-status", 2)
        assert (session.plugin_status, listed(session)) == ("detached", GONE)


@pytest.mark.requirement("C-6-grace", "I3-2-restart")
async def test_a_restart_gives_the_plugin_the_grace_time(store: Store) -> None:
    async with opened(store) as before:
        session = (await before.create(T1)).session
        await session.register(registration("a"))
        bare = (await before.create(T1)).session
        await pass_time(GRACE_S + 1)
    async with opened(store) as after:
        session, bare = await after.find(session.code, "t1"), await after.find(bare.code, "t1")
        assert (session.plugin_status, listed(session)) == ("waiting", THERE)
        assert bare.plugin_status == "detached"
        await pass_time(GRACE_S + 1)
        assert (session.plugin_status, listed(session)) == ("detached", GONE)
