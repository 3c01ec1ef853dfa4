"""Sessions as the store has them, read without a host."""

from __future__ import annotations

import pytest
from tests.sessions.fixtures import T1, T2, definition

from toolplug.errors import SessionGone, SessionNotFound
from toolplug.parts.sessions.record import record_key, state_bytes
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.stored import StoredSessions
from toolplug.parts.sessions.tools.negotiation import Registration
from toolplug.stores.store import Store
from toolplug.testing.store_fixtures import ManualClock

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I3-6-cli")]

LENT = Registration(plugin_type="table", tools=[definition("describe")])


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    made, _ = await sessions.create(T1, ttl_s=100)
    await made.register(LENT)
    return made


async def test_a_session_is_found_as_its_host_has_it(session: Session, store: Store) -> None:
    kept = StoredSessions(store, T1.tenant)
    found = await kept.find(session.code)
    assert [found.code for found in await kept.live()] == [found.code] == [session.code]
    assert state_bytes(found.state) == state_bytes(session.state)
    assert session.expires_at <= found.expires_at <= session.expires_at + 10


@pytest.mark.requirement("DYN-AC-10")
async def test_another_tenants_session_is_not_found(session: Session, store: Store) -> None:
    kept = StoredSessions(store, T2.tenant)
    assert await kept.live() == []
    with pytest.raises(SessionNotFound):
        await kept.find(session.code)
    with pytest.raises(SessionNotFound):
        await anext(kept.follow(session.code, None))


async def test_looking_writes_nothing(session: Session, store: Store) -> None:
    before = await store.read(record_key(session.code))
    kept = StoredSessions(store, T1.tenant)
    await kept.live()
    await kept.find(session.code)
    await anext(kept.follow(session.code, None))
    assert await store.read(record_key(session.code)) == before
    assert await store.keys() == [record_key(session.code)]


async def test_a_session_that_expires_while_it_is_followed_ends_the_log(
    session: Session, store: Store, clock: ManualClock
) -> None:
    kept = StoredSessions(store, T1.tenant)
    log = kept.follow(session.code, None)
    assert (await anext(log))[1] == "tool-availability-update"
    clock.now += 111
    with pytest.raises(SessionGone, match="has expired"):
        await anext(log)
    assert await kept.live() == []
    with pytest.raises(SessionGone, match="has expired"):
        await kept.find(session.code)


async def test_a_session_that_nobody_remembers_any_more_ends_the_log(
    session: Session, store: Store, clock: ManualClock
) -> None:
    log = StoredSessions(store, T1.tenant).follow(session.code, None)
    await anext(log)
    clock.now += 1_000
    with pytest.raises(SessionGone, match="has expired"):
        await anext(log)


async def test_a_record_that_cannot_be_read_hides_no_other(
    session: Session, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await store.commit(record_key("ABCDEFGH"), b"{}")
    assert [found.code for found in await StoredSessions(store, T1.tenant).live()] == [session.code]
    assert "cannot be read" in caplog.text
    assert "ABCDEFGH" not in caplog.text
