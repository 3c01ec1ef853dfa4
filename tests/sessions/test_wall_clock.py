"""The wall clock jumps by an hour, forth or back: who is there stays, and who waits is not answered for it."""

from __future__ import annotations

import pytest
from tests.sessions.fixtures import T1, attached, calling, listening, opened, registration, turns

from toolplug.errors import SessionGone
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.stores.store import Store
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.anyio

TTL_S = 600.0
HOUR_S = 3_600.0


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    session = (await sessions.create(T1, ttl_s=TTL_S)).session
    await session.register(registration("a"))
    return session


@pytest.mark.requirement("C-6-expiry", "H-time-deadlines")
@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
async def test_an_attached_plugin_and_its_waiting_call_are_not_touched(
    sessions: Sessions, session: Session, clock: ManualClock, jump_s: float
) -> None:
    async with attached(session) as plugin:
        task = await calling(session, "a")
        request = await plugin.next_request()
        clock.now += jump_s
        assert await sessions.find(session.code, "t1") is session
        await turns()
        assert not task.done()
        session.relay.answer(str(request["id"]), "in time")
        assert (await task).output == "in time"
    assert session.expires_at == clock.now + TTL_S


@pytest.mark.requirement("C-6-expiry", "H-time-ttl")
async def test_a_sign_after_a_jump_back_is_kept_for_a_whole_time_to_live(
    store: Store, session: Session, clock: ManualClock
) -> None:
    clock.now -= HOUR_S
    await session.heartbeat()
    clock.now += TTL_S - 1
    async with opened(store) as after:
        assert await after.find(session.code, "t1")
        clock.now += TTL_S
        with pytest.raises(SessionGone):
            await after.find(session.code, "t1")


@pytest.mark.requirement("C-6-expiry", "C-6-stream-errors", "H-time-ttl")
async def test_whoever_asks_for_a_session_that_a_jump_has_ended_ends_its_streams(
    sessions: Sessions, session: Session, clock: ManualClock
) -> None:
    async with listening(session) as client:
        clock.now += HOUR_S
        with pytest.raises(SessionGone):
            sessions.known_session(session.code, "t1")
        await client.hear_out()
        assert client.heard[-1].data["code"] == "session_expired"


async def test_a_jump_past_what_the_store_remembers_does_not_hold_up_the_loop(
    sessions: Sessions, session: Session, clock: ManualClock
) -> None:
    async with listening(session) as client:
        clock.now += 3 * TTL_S
        with pytest.raises(SessionGone):
            await session.heartbeat()
        await client.hear_out()
        assert client.heard[-1].data["code"] == "session_expired"
    assert sessions.live == ()
