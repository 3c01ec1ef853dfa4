"""The streams of a session: each event once and in order, or an explicit new beginning."""

from __future__ import annotations

import asyncio

import pytest
from tests.sessions.fixtures import (
    BOTH_STORES,
    T1,
    T2,
    Listener,
    added,
    attached,
    calling,
    definition,
    listening,
    names,
    registration,
    removed,
    turns,
)

from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.streams.events import event_id
from toolplug.parts.sessions.tools.negotiation import ToolChanges
from toolplug.stores.store import KEPT_EVENTS, Store

pytestmark = [pytest.mark.anyio, BOTH_STORES]

UPDATE = "tool-availability-update"


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    session = (await sessions.create(T1)).session
    await session.register(registration("a"))
    return session


def seen(listener: Listener) -> list[str]:
    """The names that a client has put together of what it was told, checking that no revision is missing or doubled."""
    tools: list[str] = []
    revision = 0
    for told in listener.heard:
        if told.event == "connected" and not told.data["resumed"]:
            tools = [tool["name"] for tool in told.data["tools"]]  # type: ignore[attr-defined]
            revision = told.data["revision"]  # type: ignore[assignment]
        if told.event == UPDATE:
            assert told.data["revision"] == revision + 1
            revision += 1
            updates: dict[str, list[object]] = told.data["updates"]  # type: ignore[assignment]
            tools = [name for name in tools if name not in updates["removed"]]
            tools += [tool["name"] for tool in updates["added"]]  # type: ignore[index]
    return tools


async def follow(listener: Listener, session: Session, revision: int) -> None:
    """Read until this revision is known."""
    while listener.heard[-1].data.get("revision", 0) < revision:  # type: ignore[operator]
        await listener.hear()


@pytest.mark.requirement("C-6-connected", "DYN-AC-3", "C-6-event-ids")
async def test_a_stream_begins_with_the_set_as_it_is(session: Session, store: Store) -> None:
    await session.update(added("b"), "before")
    record = await store.read(f"session/{session.code}")
    assert record is not None
    async with listening(session) as client:
        (connected,) = client.heard
        assert connected.id == event_id(record.position)
        assert connected.event == "connected"
        assert connected.data == {
            "sessionCode": session.code,
            "revision": 2,
            "registered": True,
            "pluginStatus": "waiting",
            "tools": [definition(name, available=True) for name in ("a", "b")],
            "resumed": False,
        }
        await turns()
        assert client.reader.idle


@pytest.mark.requirement("H-stream-race", "C-6-event-ids", "DYN-US-notify", "DYN-US-update")
async def test_each_of_many_readers_hears_each_event_once_in_order(session: Session) -> None:
    async def write(writer: str) -> None:
        for number in range(10):
            await session.update(added(f"{writer}{number}"), writer)

    async def read(after: int) -> Listener:
        await turns(after)
        async with listening(session) as client:
            await follow(client, session, 31)
            return client

    outcomes = await asyncio.gather(*(read(3 * n) for n in range(20)), *(write(writer) for writer in "xyz"))
    for client in outcomes[:20]:
        assert isinstance(client, Listener)
        assert seen(client) == names(session)
        ids = [told.id for told in client.heard]
        assert ids == sorted(set(ids))


@pytest.mark.requirement("H-stream-race")
async def test_a_stream_that_opens_while_the_set_changes_misses_nothing_and_hears_nothing_twice(
    session: Session,
) -> None:
    async with listening(session):
        for number in range(30):
            opening = asyncio.create_task(session.open_stream("client", None))
            await turns(number % 5)
            await session.update(added(f"t{number}"), "race")
            client = Listener(await opening)
            await client.hear_until("connected")
            await follow(client, session, session.revision)
            assert seen(client) == names(session)
            session.close_stream(client.reader)


@pytest.mark.requirement("C-6-resume", "H-stream-reconnect")
async def test_a_reader_goes_on_behind_any_event_that_the_log_holds(session: Session) -> None:
    async with listening(session) as whole:
        for number in range(5):
            await session.update(ToolChanges(added=[definition(f"t{number}")]), str(number))
        await whole.hear_until(UPDATE, 5)
    for position, told in enumerate(whole.heard):
        async with listening(session, after=str(told.id)) as client:
            assert client.heard[0].id == told.id
            assert client.heard[0].data == {
                "sessionCode": session.code,
                "revision": 6,
                "registered": True,
                "pluginStatus": "waiting",
                "resumed": True,
            }
            assert client.heard[1:] == whole.heard[position + 1 :]
            await turns()
            assert client.reader.idle


@pytest.mark.requirement("C-6-resume", "H-stream-race")
async def test_a_reader_that_goes_on_while_the_set_changes_misses_nothing(session: Session) -> None:
    async with listening(session) as first:
        for number in range(30):
            resuming = asyncio.create_task(session.open_stream("client", first.last_id))
            await turns(number % 5)
            await session.update(added(f"t{number}"), "race")
            client = Listener(await resuming)
            await client.hear_until(UPDATE)
            assert [event["reason"] for event in client.of(UPDATE)] == ["race"]
            session.close_stream(client.reader)
            await follow(first, session, session.revision)
    assert seen(first) == names(session)


@pytest.mark.requirement("C-6-resync", "H-stream-reconnect")
@pytest.mark.parametrize("last_id", ["0", "99999999", "foreign", "", "-1", "+1", "1.0", " 1", "1 ", "١", "x", "9" * 40])
async def test_an_id_that_is_none_of_the_logs_is_answered_by_a_new_beginning(
    sessions: Sessions, session: Session, last_id: str
) -> None:
    if last_id == "foreign":
        other = (await sessions.create(T2)).session
        async with listening(other) as client:
            last_id = client.last_id
    async with listening(session, after=last_id) as client:
        resync, connected = client.heard
        assert (resync.event, resync.data) == ("resync", {"reason": "unknown_event_id"})
        assert (connected.event, connected.data["resumed"]) == ("connected", False)
        assert seen(client) == ["a"]
    assert sessions.counters.resyncs == {"unknown_event_id": 1}


@pytest.mark.requirement("C-6-resync", "C-6-limits")
async def test_the_log_keeps_256_events(session: Session) -> None:
    async with listening(session) as client:
        begin = client.last_id
    for number in range(KEPT_EVENTS):
        await session.update(added("t") if number % 2 == 0 else removed("t"), str(number))
    # What is before the first of them is gone: one more than the log holds would be needed.
    async with listening(session, after=begin) as client:
        assert client.heard[0].event == "resync"
        newest = int(client.last_id)
    async with listening(session, after=str(newest - event_id(KEPT_EVENTS - 1))) as client:
        await client.hear_until(UPDATE, KEPT_EVENTS - 1)
        assert client.heard[0].data["resumed"] is True
        assert client.of(UPDATE)[-1]["reason"] == str(KEPT_EVENTS - 1)


@pytest.mark.requirement("C-6-stream-roles")
async def test_requests_go_to_the_plugin_and_updates_to_everybody(session: Session) -> None:
    async with listening(session) as client, attached(session) as plugin:
        await client.hear_until("plugin-status")
        task = await calling(session, "a")
        request = await plugin.next_request()
        task.cancel()
        assert await plugin.hear_until("tool-cancelled") == {"id": request["id"], "reason": "cancelled"}
        await session.update(added("b"), "for all")
        await plugin.hear_until(UPDATE)
        await client.hear_until(UPDATE)
        assert [told.event for told in client.heard] == ["connected", "plugin-status", UPDATE]
        assert [told.event for told in plugin.heard] == [
            "connected",
            "plugin-status",
            "tool-request",
            "tool-cancelled",
            UPDATE,
        ]


@pytest.mark.requirement("C-6-resume", "C-6-lease")
async def test_a_plugin_that_resumes_gets_its_request_anew_and_not_out_of_the_log(session: Session) -> None:
    async with attached(session) as plugin:
        begin = plugin.last_id
        task = await calling(session, "a")
        first = await plugin.next_request()
    reader = await session.open_stream("plugin", begin)
    plugin_again = Listener(reader)
    await plugin_again.hear_until("tool-request")
    assert plugin_again.of("tool-request") == [first | {"attempt": 2}]
    session.relay.answer(str(first["id"]), "once")
    assert (await task).output == "once"
    session.close_stream(reader)


@pytest.mark.requirement("C-6-resume", "C-6-event-ids")
async def test_a_plugin_goes_on_behind_a_request(session: Session) -> None:
    async with attached(session) as plugin:
        await plugin.hear_until("plugin-status")
        tasks = [await calling(session, "a", n=n) for n in range(2)]
        await plugin.hear_until("tool-request", 2)
        ids = [told.id for told in plugin.heard]
        assert ids == [*ids[:2], ids[1] + 1, ids[1] + 2]
        await session.update(added("b"), "after")
    for told in plugin.heard[2:]:
        async with listening(session, after=str(told.id)) as again:
            assert [(event.id, event.event) for event in again.heard[:1]] == [(told.id, "connected")]
            assert again.heard[0].data["resumed"] is True
            await again.hear_until(UPDATE)
            assert again.heard[-1].id > ids[-1]
    async with listening(session, after=str(ids[-1] + 1)) as again:
        assert [event.event for event in again.heard] == ["resync", "connected"]
    for task in tasks:
        task.cancel()


@pytest.mark.requirement("I3-3-encoded-once")
async def test_an_event_is_encoded_once_for_all_readers(session: Session) -> None:
    async with listening(session) as one, listening(session) as other:
        await session.update(added("b"), "once")
        assert await one.reader.next() is await other.reader.next()


@pytest.mark.requirement("C-6-metadata-first")
async def test_metadata_shows_what_an_event_says_when_it_arrives(session: Session) -> None:
    async with listening(session) as client:
        executor = session.executor
        for number in range(20):
            update = asyncio.create_task(session.update(added(f"t{number}"), "now"))
            event = await client.hear_until(UPDATE, number + 1)
            assert event["revision"] == session.revision == number + 2
            assert names(session)[-1] == f"t{number}"
            assert list(executor.catalog) == names(session)
            await update


@pytest.mark.requirement("DYN-AC-10", "DYN-US-isolated")
async def test_no_stream_hears_of_another_session(sessions: Sessions, session: Session) -> None:
    other = (await sessions.create(T1)).session
    await other.register(registration("theirs"))
    async with listening(session) as mine, listening(other) as theirs, attached(other) as plugin:
        await other.update(added("secret"), "theirs")
        task = await calling(other, "theirs")
        other.relay.answer(str((await plugin.next_request())["id"]), 1)
        await task
        await session.update(added("b"), "mine")
        await mine.hear_until(UPDATE)
        assert [told.event for told in mine.heard] == ["connected", UPDATE]
        await theirs.hear_until(UPDATE)
        assert all(told.data["sessionCode"] == other.code for told in theirs.heard)


async def test_a_stream_that_is_closed_takes_and_gives_nothing_more(session: Session) -> None:
    async with listening(session) as client:
        reader = client.reader
    await session.update(added("b"), "unheard")
    await turns()
    assert await reader.next() == b""
    assert session.feed.readers == ()


async def test_the_log_is_followed_only_while_somebody_reads(session: Session) -> None:
    def followers() -> int:
        return sum(task.get_name() == "toolplug-session-feed" for task in asyncio.all_tasks())

    for _ in range(3):
        async with listening(session), listening(session):
            assert followers() == 1
        await turns()
        assert followers() == 0
