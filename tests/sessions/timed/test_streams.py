"""Streams that are slow, silent, cut off from their log or closed: bounded, and told where they must begin again."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from tests.faulty_store import FaultyStore, evenly
from tests.sessions.fixtures import (
    T1,
    Listener,
    added,
    attached,
    calling,
    definition,
    listening,
    modified,
    registration,
    removed,
    turns,
)
from tests.virtual_time import pass_time

from toolplug.errors import StoreUnavailable
from toolplug.parts.sessions.limits import MAX_WAITING_BYTES, MAX_WAITING_EVENTS
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.streams.stream import Reader

pytestmark = pytest.mark.anyio

UPDATE = "tool-availability-update"


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    session = (await sessions.create(T1)).session
    await session.register(registration("a"))
    return session


async def change(session: Session, count: int) -> None:
    """So many updates, each told before the next."""
    for number in range(count):
        await session.update(added("t") if number % 2 == 0 else removed("t"), str(number))
        await turns(3)


async def no_catching_up(_: Reader) -> None:
    """A beginning that is not looked at."""


@pytest.mark.requirement("C-6-slow-reader", "H-stream-bounded", "C-6-limits", "H-stream-slow")
async def test_a_reader_may_be_256_events_late_and_one_more_begins_it_again(
    sessions: Sessions, session: Session
) -> None:
    async with listening(session) as quick, listening(session) as late, listening(session) as too_late:
        reading = asyncio.create_task(quick.hear_until(UPDATE, MAX_WAITING_EVENTS + 1))
        await change(session, MAX_WAITING_EVENTS)
        await late.hear_until(UPDATE, MAX_WAITING_EVENTS)
        await change(session, 1)
        await reading
        await too_late.hear()
        assert [told.event for told in too_late.heard] == ["connected", "resync", "connected"]
        assert too_late.of("resync") == [{"reason": "slow_reader"}]
        assert too_late.of("connected")[1]["revision"] == session.revision
        await session.update(modified("a", "Goes on."), "after")
        await too_late.hear_until(UPDATE)
        assert too_late.of(UPDATE)[0]["reason"] == "after"
        assert len(late.of("connected")) == len(quick.of("connected")) == 1
    assert sessions.counters.resyncs == {"slow_reader": 1}


@pytest.mark.requirement("H-stream-bounded", "C-6-limits")
async def test_a_reader_holds_a_mebibyte_and_not_a_byte_more() -> None:
    half = bytes(MAX_WAITING_BYTES // 2)
    full, over = Reader("client", no_catching_up), Reader("client", no_catching_up)
    for reader in (full, over):
        reader.push(1, half)
        reader.push(2, half)
    over.push(3, b"!")
    assert full.lost is None
    assert over.lost == "slow_reader"
    assert await full.next() == half + half


@pytest.mark.requirement("H-stream-bounded")
async def test_one_frame_larger_than_that_waits_alone() -> None:
    reader = Reader("client", no_catching_up)
    large = bytes(MAX_WAITING_BYTES + 1)
    reader.push(1, large)
    assert await reader.next() == large
    reader.push(2, b"small")
    reader.push(3, large)
    assert reader.lost == "slow_reader"


@pytest.mark.slow
@pytest.mark.requirement("H-stream-slow")
async def test_a_reader_that_never_reads_costs_nobody_anything(session: Session) -> None:
    async with listening(session), listening(session) as quick:
        for number in range(1_000):
            await session.update(modified("a", str(number)), "on")
            await quick.hear_until(UPDATE, number + 1)


@pytest.mark.requirement("C-6-heartbeat-event", "C-6-event-ids")
async def test_a_silent_stream_beats_every_15_seconds(sessions: Sessions) -> None:
    session = (await sessions.create(T1)).session
    async with listening(session) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for count in (1, 2, 3):
            assert (await client.hear_until("heartbeat", count)).keys() == {"timestamp"}
            assert loop.time() - began == pytest.approx(15 * count)
        assert [told.id for told in client.heard] == [client.heard[0].id] * 4


@pytest.mark.requirement("C-6-heartbeat-event", "C-6-resume")
async def test_a_heartbeat_says_how_far_its_reader_has_come(session: Session) -> None:
    async with listening(session) as client:
        # A request is an event of the log that this reader does not hear.
        async with attached(session):
            (await calling(session, "a")).cancel()
            await turns()
        await client.hear_until("plugin-status")
        await client.hear_until("heartbeat")
        await session.update(added("b"), "unheard")
        last_heartbeat = client.last_id
    async with listening(session, after=last_heartbeat) as client:
        await client.hear_until(UPDATE)
        assert [told.event for told in client.heard] == ["connected", UPDATE]


async def test_heartbeats_do_not_pile_up_for_one_who_does_not_read(session: Session) -> None:
    async with listening(session) as client:
        await pass_time(1_000)
        await client.hear()
        assert len(client.of("heartbeat")) == 1


@pytest.mark.requirement("H-stream-reconnect")
async def test_a_stream_goes_on_where_it_was_when_the_store_is_back(
    session: Session, store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(session) as client:
        store.down = True
        # Wakes the follower, which finds the store down from now on.
        await store.inner.extend(f"session/{session.code}", events=[b"nothing - 0\n{}"])
        await pass_time(20)
        store.down = False
        await session.update(added("b"), "after")
        await client.hear_until(UPDATE)
        assert [event["reason"] for event in client.of(UPDATE)] == ["after"]
        assert "resync" not in {told.event for told in client.heard}
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1


@pytest.mark.requirement("H-stream-race")
@pytest.mark.parametrize("operation", ["read", "events"])
async def test_an_event_that_cannot_be_looked_into_at_first_is_told_once_it_can(
    session: Session, store: FaultyStore, operation: str
) -> None:
    """Another process has written it, so that the record must be read before it is told."""
    async with listening(session) as client:
        record = await store.inner.read(f"session/{session.code}")
        assert record is not None
        store.fails = lambda asked: asked == operation
        newer = record.value.replace(b'"revision":1', b'"revision":2')
        event = b'tool-availability-update * 2\n{"revision":2}'
        await store.inner.commit(f"session/{session.code}", newer, ttl_s=100, events=[event])
        await pass_time(5)
        assert client.reader.idle
        assert session.revision == 1
        store.fails = lambda _: False
        assert await client.hear_until(UPDATE) == {"revision": 2}
        assert session.revision == 2
        await pass_time(5)
        assert client.of(UPDATE) == [{"revision": 2}]


@pytest.mark.requirement("C-6-resync", "H-stream-reconnect")
@pytest.mark.parametrize("read_fails_first", [False, True])
async def test_a_stream_whose_place_in_the_log_is_gone_begins_again(
    session: Session, store: FaultyStore, read_fails_first: bool
) -> None:
    async with listening(session) as client:
        store.fails = lambda operation: operation == "events"
        for number in range(300):
            await session.update(modified("a", str(number)), str(number))
        await pass_time(1)
        store.fails = lambda operation: read_fails_first and operation == "read"
        await pass_time(1)
        store.fails = lambda _: False
        await client.hear_until("connected", 2)
        assert client.of("resync") == [{"reason": "log_lost"}]
        assert client.of("connected")[1]["revision"] == session.revision
        await session.update(added("b"), "after")
        await client.hear_until(UPDATE)
        assert client.of(UPDATE)[-1]["reason"] == "after"


@pytest.mark.requirement("C-6-lease", "C-6-slow-reader")
async def test_a_plugin_that_was_too_slow_is_sent_its_requests_again(session: Session) -> None:
    async with attached(session) as plugin:
        task = await calling(session, "a")
        await change(session, MAX_WAITING_EVENTS + 1)
        request = await plugin.next_request()
        assert request["attempt"] == 2
        assert [told.event for told in plugin.heard][-3:] == ["resync", "connected", "tool-request"]
        session.relay.answer(str(request["id"]), "at last")
        assert (await task).output == "at last"


async def test_a_reader_that_cannot_begin_again_hears_so_and_may_try_again(
    session: Session, store: FaultyStore
) -> None:
    async with listening(session) as client:
        await change(session, MAX_WAITING_EVENTS + 1)
        store.fails = lambda operation: operation == "read"
        with pytest.raises(StoreUnavailable):
            await client.hear()
        store.fails = lambda _: False
        await client.hear_until("connected", 2)
        assert client.of("connected")[1]["revision"] == session.revision


@pytest.mark.requirement("C-6-stream-errors")
@pytest.mark.parametrize("turns_before_the_end", range(6))
async def test_the_last_words_reach_a_reader_that_begins_again(
    sessions: Sessions, session: Session, store: FaultyStore, turns_before_the_end: int
) -> None:
    async with listening(session) as client:
        await change(session, MAX_WAITING_EVENTS + 1)
        store.pace = evenly(0, 3)
        reading = asyncio.create_task(client.hear_out())
        await turns(turns_before_the_end)
        await sessions.end(session, T1)
        await reading
        assert client.heard[-1].event == "error"
        assert client.heard[-1].data["code"] == "session_ended"


@pytest.mark.requirement("C-6-stream-errors")
async def test_a_reader_hears_what_waited_for_it_and_then_the_last_words(sessions: Sessions, session: Session) -> None:
    async with listening(session) as client:
        await change(session, 3)
        await sessions.end(session, T1)
        await client.hear_out()
        assert [told.event for told in client.heard] == ["connected", UPDATE, UPDATE, UPDATE, "error"]
        assert client.heard[-1].data == {
            "code": "session_ended",
            "message": "the session was ended; create a new one with POST /api/sessions",
        }


async def test_a_host_that_stops_closes_streams_without_a_word(sessions: Sessions, session: Session) -> None:
    async with listening(session) as client, listening(session, "plugin") as plugin:
        await sessions.aclose()
        for listener in (client, plugin):
            await listener.hear_out()
            assert listener.heard[-1].event in {"connected", "plugin-status"}
        late = Listener(await session.open_stream("client", None))
        await late.hear_out()


@pytest.mark.requirement("C-6-limits")
async def test_an_update_larger_than_a_readers_buffer_reaches_it(session: Session) -> None:
    tools = [definition(f"t{n}", annotations={"x": "x" * 60_000}) for n in range(100)]
    async with listening(session) as client:
        await session.register(replace(registration(), tools=tools))
        await client.hear_until(UPDATE)
        assert [told.event for told in client.heard] == ["connected", UPDATE]
