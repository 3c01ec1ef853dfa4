"""What a restart finds again, and what it does not choke on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.faulty_store import FaultyStore
from tests.sessions.fixtures import (
    BOTH_STORES,
    LIMITS,
    T1,
    T2,
    added,
    attached,
    calling,
    definition,
    listening,
    names,
    opened,
    registration,
    removed,
)

from toolplug.errors import ApiError, SessionGone, SessionNotFound, StoreUnavailable
from toolplug.parts.sessions.record import state_bytes
from toolplug.parts.sessions.service import Sessions
from toolplug.stores.store import Store
from toolplug.testing.store_fixtures import ManualClock

pytestmark = [pytest.mark.anyio, BOTH_STORES]


@pytest.mark.requirement("I3-2-restart", "I3-1-kept")
async def test_a_restart_finds_sessions_tools_and_tokens(store: Store) -> None:
    asked = replace(
        registration("a", environment={"version": "1"}, capabilities=[{"type": "storage", "level": "basic"}]),
        tools=[definition("a", "A.", requires=["storage"]), definition("b.c", annotations={"readOnlyHint": True})],
    )
    async with opened(store) as before:
        session, token = await before.create(T1, plugin_type="codap", ttl_s=50)
        await session.register(asked)
        await session.update(added("d"), "more")
        bare, _ = await before.create(T2)
        over = (await before.create(T1)).session
        await before.end(over, T1)
        kept, shown = state_bytes(session.state), session.tools_wire()
    async with opened(store) as after:
        assert {each.code for each in after.live} == {session.code, bare.code}
        again = await after.with_token(session.code, token)
        assert again is not None
        assert (state_bytes(again.state), again.tools_wire()) == (kept, shown)
        assert again.expires_at == pytest.approx(session.expires_at, abs=6)
        assert (await after.find(bare.code, "t2")).state.registered is False
        assert (await again.update(removed("d"), "less")).revision == 3
        with pytest.raises(SessionGone):
            await after.find(over.code, "t1")


@pytest.mark.requirement("I3-2-restart", "C-6-resume")
async def test_a_reader_goes_on_after_a_restart_where_it_was(store: Store) -> None:
    async with opened(store) as before:
        session = (await before.create(T1)).session
        await session.register(registration("a"))
        async with listening(session) as client:
            last_id = client.last_id
        await session.update(added("b"), "unheard")
    async with opened(store) as after:
        session = await after.find(session.code, "t1")
        await session.update(added("c"), "after")
        async with listening(session, after=last_id) as client:
            assert client.of("connected") == [
                {
                    "sessionCode": session.code,
                    "revision": 3,
                    "registered": True,
                    "pluginStatus": "waiting",
                    "resumed": True,
                }
            ]
            await client.hear_until("tool-availability-update", 2)
            assert [event["reason"] for event in client.of("tool-availability-update")] == ["unheard", "after"]


@pytest.mark.requirement("I3-2-restart", "C-6-resume", "C-6-events-log")
async def test_a_plugin_goes_on_after_a_restart_behind_its_last_request(store: Store) -> None:
    async with opened(store) as before:
        session = (await before.create(T1)).session
        await session.register(registration("a"))
        async with attached(session) as plugin:
            task = await calling(session, "a")
            request = await plugin.next_request()
            last_id = plugin.last_id
    assert (await task).metadata["code"] == "host_stopping"
    async with opened(store) as after:
        session = await after.find(session.code, "t1")
        logged = await session.log_page(None)
        assert logged is not None
        assert [event.data["id"] for event in logged.events if event.event == "tool-request"] == [request["id"]]
        async with listening(session, "plugin", after=last_id) as again:
            assert again.of("connected")[0]["resumed"] is True


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"null", b'{"tenant": 1'])
async def test_a_record_that_cannot_be_read_keeps_no_host_from_starting(
    store: Store, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(store) as before:
        good = (await before.create(T1)).session
    await store.commit("session/AAAAAAAA", value)
    async with opened(store) as after:
        assert [each.code for each in after.live] == [good.code]
        said_at_the_start = len(caplog.records)
        with pytest.raises(SessionNotFound):  # a damaged record counts as none
            await after.find("AAAAAAAA", "t1")
    assert "AAAAAAAA" not in caplog.text
    assert said_at_the_start == 1


async def test_a_definition_that_is_not_taken_any_more_keeps_no_host_from_starting(store: Store) -> None:
    async with opened(store) as before:
        session = (await before.create(T1)).session
        await session.register(registration("a"))
    record = await store.read(f"session/{session.code}")
    assert record is not None
    await store.commit(f"session/{session.code}", record.value.replace(b'"name":"a"', b'"name":"a b"'))
    async with opened(store) as after:
        assert after.live == ()


async def test_a_store_that_fails_while_sessions_are_loaded_leaves_nothing_behind(store: Store) -> None:
    faulty = FaultyStore(store)
    async with opened(faulty) as before:
        for _ in range(60):
            await before.create(T1)
    reads = iter(range(1_000))
    faulty.fails = lambda operation: operation == "read" and next(reads) == 55
    with pytest.raises(StoreUnavailable):
        async with opened(faulty):
            pass
    async with opened(faulty) as after:
        assert len(after.live) == 60


@pytest.mark.requirement("C-6-limits")
async def test_loaded_sessions_count_among_the_open_ones(store: Store) -> None:
    limits = replace(LIMITS, max_sessions=2)
    async with opened(store, limits=limits) as before:
        await before.create(T1)
        await before.create(T1)
    async with opened(store, limits=limits) as after:
        with pytest.raises(ApiError, match="2 sessions open already"):
            await after.create(T1)


@pytest.mark.requirement("C-6-code-expired")
async def test_a_session_that_expired_while_no_host_ran_is_remembered(store: Store, clock: ManualClock) -> None:
    async with opened(store) as before:
        session = (await before.create(T1, ttl_s=100)).session
    clock.now += 150
    async with opened(store) as after:
        await _is_gone(after, session.code)
        clock.now += 50
        await _is_gone(after, session.code)


async def _is_gone(sessions: Sessions, code: str) -> None:
    with pytest.raises(SessionGone) as gone:
        await sessions.find(code, "t1")
    assert gone.value.state == "session_expired"
    assert code not in {session.code for session in sessions.live}


async def test_names_are_kept_in_order(store: Store) -> None:
    async with opened(store) as before:
        session = (await before.create(T1)).session
        await session.register(registration("z", "a", "m"))
    async with opened(store) as after:
        assert names(await after.find(session.code, "t1")) == ["z", "a", "m"]
