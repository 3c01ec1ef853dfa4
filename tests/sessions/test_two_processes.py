"""Two hosts on one SQLite file: what one writes the other hears, and neither undoes the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.sessions.fixtures import T1, added, listed, listening, names, opened, registration, removed

from toolplug.errors import ApiError, SessionGone
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.sqlite.store import SqliteStore
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.anyio


class Two(NamedTuple):
    """One session as two hosts have it."""

    here: Session
    there: Session
    hosts: tuple[Sessions, Sessions]


@pytest.fixture
async def two(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Two]:
    file = tmp_path / "state.db"
    async with (
        SqliteStore(file, clock=clock) as one,
        SqliteStore(file, clock=clock) as other,
        opened(one) as here,
        opened(other) as there,
    ):
        session = (await here.create(T1, ttl_s=100)).session
        await session.register(registration("a"))
        yield Two(session, await there.find(session.code, "t1"), (here, there))


@pytest.mark.requirement("I3-1-cas", "C-6-atomic-revision")
async def test_updates_of_both_are_all_kept_and_revisions_rise_by_one(two: Two) -> None:
    updates = [
        session.update(added(f"{which}{n}"), "race")
        for n in range(10)
        for which, session in (("h", two.here), ("t", two.there))
    ]
    revisions = [updated.revision for updated in await asyncio.gather(*updates)]
    assert sorted(revisions) == list(range(2, 22))
    await two.here.refresh()
    await two.there.refresh()
    assert names(two.here) == names(two.there)
    assert sorted(names(two.here)) == sorted(["a", *(f"{which}{n}" for which in "ht" for n in range(10))])


@pytest.mark.requirement("C-6-update-if-match", "I3-1-cas", "H-replicas-race")
async def test_one_of_two_that_expect_one_revision_wins(two: Two) -> None:
    outcomes = await asyncio.gather(
        two.here.update(added("h"), "race", 1), two.there.update(added("t"), "race", 1), return_exceptions=True
    )
    refused = [outcome.code for outcome in outcomes if isinstance(outcome, ApiError)]
    assert refused == ["revision_mismatch"]
    await two.here.refresh()
    assert (two.here.revision, len(names(two.here))) == (2, 2)


@pytest.mark.slow
@pytest.mark.requirement("H-stream-race", "C-6-metadata-first")
async def test_readers_of_either_hear_every_update_once_in_order_and_find_it_in_metadata(two: Two) -> None:
    async with listening(two.here) as one, listening(two.there) as other:
        for number in range(5):
            await two.here.update(added(f"h{number}"), "here")
            await two.there.update(added(f"t{number}"), "there")
            for listener, session in ((one, two.here), (other, two.there)):
                await listener.hear_until("tool-availability-update", 2 * number + 2)
                assert list(listed(session)) == names(session)
                assert names(session)[-1] == f"t{number}"
        for listener in (one, other):
            updates = listener.of("tool-availability-update")
            assert [event["revision"] for event in updates] == list(range(2, 12))
            assert [event["reason"] for event in updates] == ["here", "there"] * 5


async def test_a_snapshot_that_is_newer_than_what_this_host_knew_is_taken_over(two: Two) -> None:
    executor = two.there.executor
    await two.here.update(removed("a"), "here")
    assert names(two.there) == ["a"]
    async with listening(two.there) as client:
        (connected,) = client.of("connected")
        assert (connected["revision"], connected["tools"]) == (2, [])
        assert (names(two.there), list(executor.catalog)) == ([], [])


@pytest.mark.requirement("C-6-delete", "C-6-stream-errors")
async def test_the_end_at_one_closes_the_streams_of_the_other(two: Two) -> None:
    async with listening(two.there) as client:
        await two.hosts[0].end(two.here, T1)
        await client.hear_out()
        assert client.heard[-1].data["code"] == "session_ended"
    with pytest.raises(SessionGone):
        await two.hosts[1].find(two.here.code, "t1")


async def test_an_update_after_the_end_at_the_other_is_refused(two: Two) -> None:
    await two.hosts[0].end(two.here, T1)
    with pytest.raises(SessionGone):
        await two.there.update(added("b"), "late")
    assert two.hosts[1].live == ()


@pytest.mark.requirement("C-6-expiry")
async def test_a_sign_at_one_keeps_the_session_at_the_other(two: Two, clock: ManualClock) -> None:
    clock.now += 60
    await two.here.heartbeat()
    clock.now += 60
    # Past what the other one knew of, not past the sign.
    assert await two.hosts[1].find(two.here.code, "t1") is two.there
    clock.now += 60
    with pytest.raises(SessionGone):
        await two.hosts[0].find(two.here.code, "t1")
    with pytest.raises(SessionGone):
        await two.hosts[1].find(two.here.code, "t1")
    assert two.hosts[0].counters.ended == two.hosts[1].counters.ended == {"session_expired": 1}


@pytest.mark.requirement("C-6-expiry")
async def test_a_plugin_attached_to_one_keeps_the_session_at_the_other(two: Two, clock: ManualClock) -> None:
    async with listening(two.here, "plugin"):
        for _ in range(5):
            clock.now += 60
            await two.here.heartbeat()
        clock.now += 60
        assert await two.hosts[1].find(two.here.code, "t1") is two.there


async def test_a_session_made_by_one_is_found_by_the_other(two: Two) -> None:
    session, token = await two.hosts[1].create(T1)
    found = await two.hosts[0].with_token(session.code, token)
    assert found is not None
    assert found.code == session.code
