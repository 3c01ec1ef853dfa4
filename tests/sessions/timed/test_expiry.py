"""A session lives for its time to live after its plugin's last sign, and is remembered for one more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.faulty_store import FaultyStore, evenly
from tests.sessions.fixtures import T1, Listener, added, listening, opened, registration
from tests.virtual_time import pass_time

from toolplug.errors import SessionGone, SessionNotFound, StoreUnavailable
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session

pytestmark = pytest.mark.anyio

TTL_S = 100.0


async def created(sessions: Sessions) -> Session:
    return (await sessions.create(T1, ttl_s=TTL_S)).session


async def gone(sessions: Sessions, session: Session) -> str | None:
    """How the session has ended, None while it lives."""
    try:
        await sessions.find(session.code, "t1")
    except SessionGone as error:
        return error.state
    return None


async def _heartbeat(session: Session) -> None:
    await session.heartbeat()


async def _register(session: Session) -> None:
    await session.register(registration("a"))


async def _update(session: Session) -> None:
    await session.update(added("b"), "test")


async def _attached_for_a_moment(session: Session) -> None:
    async with listening(session, "plugin"):
        pass


@pytest.mark.requirement("C-6-expiry", "C-6-code-expired")
async def test_a_session_without_any_sign_expires_after_its_time_to_live(sessions: Sessions) -> None:
    session = await created(sessions)
    await pass_time(TTL_S - 0.1)
    assert await gone(sessions, session) is None
    await pass_time(0.2)
    assert await gone(sessions, session) == "session_expired"
    assert sessions.live == ()


@pytest.mark.requirement("C-6-expiry", "C-6-heartbeat")
@pytest.mark.parametrize("sign", [_heartbeat, _register, _update, _attached_for_a_moment])
async def test_each_sign_of_the_plugin_gives_one_more_time_to_live(
    sessions: Sessions, sign: Callable[[Session], Awaitable[None]]
) -> None:
    session = await created(sessions)
    await session.register(registration("x"))
    await pass_time(70.0)
    await sign(session)
    await pass_time(TTL_S - 0.1)
    assert await gone(sessions, session) is None
    await pass_time(0.2)
    assert await gone(sessions, session) == "session_expired"


@pytest.mark.requirement("C-6-expiry")
async def test_an_attached_plugin_keeps_its_session_for_as_long_as_it_is(sessions: Sessions) -> None:
    session = await created(sessions)
    async with listening(session, "plugin"):
        await pass_time(10 * TTL_S)
        assert await gone(sessions, session) is None
    await pass_time(TTL_S - 0.1)
    assert await gone(sessions, session) is None
    await pass_time(0.2)
    assert await gone(sessions, session) == "session_expired"


@pytest.mark.requirement("C-6-expiry")
async def test_clients_do_not_keep_a_session(sessions: Sessions) -> None:
    session = await created(sessions)
    async with listening(session) as client:
        await client.hear_out()
        assert [heard.event for heard in client.heard][-1] == "error"
        assert client.heard[-1].data["code"] == "session_expired"
    assert await gone(sessions, session) == "session_expired"


@pytest.mark.requirement("C-6-code-expired", "C-6-code-ended")
@pytest.mark.parametrize("how", ["session_expired", "session_ended"])
async def test_a_session_that_is_over_is_remembered_for_one_more_time_to_live(sessions: Sessions, how: str) -> None:
    session = await created(sessions)
    if how == "session_ended":
        await pass_time(60.0)
        await sessions.end(session, T1)
    else:
        await pass_time(TTL_S)
    assert await gone(sessions, session) == how
    await pass_time(TTL_S - 1)
    assert await gone(sessions, session) == how
    with pytest.raises(SessionNotFound):
        await sessions.find(session.code, "t2")
    await pass_time(2)
    with pytest.raises(SessionNotFound):
        await sessions.find(session.code, "t1")


@pytest.mark.requirement("C-6-expiry")
@pytest.mark.parametrize("sign_at", [3.0, 30.0, 99.0])
@pytest.mark.parametrize("attached", [False, True])
async def test_a_restart_never_expires_a_session_early_nor_much_later(
    store: FaultyStore, sign_at: float, attached: bool
) -> None:
    async with opened(store) as before:
        session = await created(before)
        if attached:
            async with listening(session, "plugin"):
                await pass_time(sign_at)
                # The process dies here: nothing is written after.
                store.down = True
        else:
            await pass_time(sign_at)
            await session.heartbeat()
            store.down = True
    store.down = False
    await pass_time(TTL_S - 1)
    async with opened(store) as after:
        assert await gone(after, session) is None
        await pass_time(TTL_S * 0.1 + 2)
        assert await gone(after, session) == "session_expired"


@pytest.mark.requirement("C-6-expiry")
async def test_a_second_restart_knows_of_the_sign_after_the_first(store: FaultyStore) -> None:
    async with opened(store) as first:
        session = await created(first)
        await pass_time(90.0)
    async with opened(store) as second:
        await (await second.find(session.code, "t1")).heartbeat()
    await pass_time(TTL_S - 1)
    async with opened(store) as third:
        assert await gone(third, session) is None


@pytest.mark.requirement("C-6-expiry")
async def test_a_heartbeat_is_answered_only_when_it_is_kept(sessions: Sessions, store: FaultyStore) -> None:
    session = await created(sessions)
    await pass_time(50.0)
    store.down = True
    with pytest.raises(StoreUnavailable):
        await session.heartbeat()


@pytest.mark.requirement("C-6-expiry")
async def test_a_session_expires_when_the_store_is_back(sessions: Sessions, store: FaultyStore) -> None:
    session = await created(sessions)
    async with listening(session) as client:
        store.down = True
        await pass_time(TTL_S + 60)
        with pytest.raises(StoreUnavailable):
            await sessions.find(session.code, "t1")
        store.down = False
        await client.hear_out()
        assert client.heard[-1].data["code"] == "session_expired"
    assert sessions.counters.ended == {"session_expired": 1}


@pytest.mark.requirement("C-6-expiry", "C-6-stream-errors")
async def test_a_session_whose_record_is_gone_ends_its_streams(sessions: Sessions, store: FaultyStore) -> None:
    session = await created(sessions)
    async with listening(session) as client, listening(session, "plugin") as plugin:
        await store.inner.commit(f"session/{session.code}", None)
        for listener in (client, plugin):
            await listener.hear_out()
            assert listener.heard[-1].data["code"] == "session_expired"
    with pytest.raises(SessionNotFound):
        await sessions.find(session.code, "t1")
    assert sessions.live == ()
    assert sessions.counters.ended == {"session_expired": 1}


@pytest.mark.requirement("C-6-stream-errors", "C-6-delete")
@pytest.mark.parametrize("turns", range(8))
async def test_no_stream_outlives_its_session_whenever_it_opens(
    sessions: Sessions, store: FaultyStore, turns: int
) -> None:
    session = await created(sessions)
    async with listening(session) as open_before:
        store.pace = evenly(turns // 2, turns)
        ending = asyncio.create_task(sessions.end(session, T1))
        for role, after in (("client", None), ("plugin", None), ("client", "1"), ("client", "99")):
            await asyncio.sleep(0)
            try:
                reader = await session.open_stream(role, after)  # type: ignore[arg-type]
            except SessionGone:
                continue
            late = Listener(reader)
            await late.hear_out()
            session.close_stream(reader)
            assert late.heard[-1].data["code"] == "session_ended"
        await ending
        await open_before.hear_out()
        assert open_before.heard[-1].data["code"] == "session_ended"
    assert session.feed.readers == ()
