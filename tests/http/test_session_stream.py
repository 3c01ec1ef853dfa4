"""A session's stream: who is told what, in which order, and how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from tests.http.conftest import ALICE, ROOT, client_of
from tests.http.event_talk import EventTalk, Told, talking
from tests.http.jumping_loop import Jump, on_jumping_loop
from tests.http.session_plugin import Json, new_plugin, refusal, sessions_host, tool

from toolplug import open_host
from toolplug.http import create_app
from toolplug.http.event_stream import STUCK_S
from toolplug.parts.sessions.http.event_stream import RECHECK_S
from toolplug.parts.sessions.limits import HEARTBEAT_S

pytestmark = pytest.mark.anyio


def shape(told: Told) -> tuple[str, object]:
    """An event's name and what tells it from others of that name."""
    return told.event, told.data.get("revision", told.data.get("status", told.data.get("reason")))


@pytest.mark.requirement("C-6-connected", "C-6-stream-roles", "DYN-US-notify")
async def test_a_reader_is_told_first_what_there_is_now() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        async with talking(app, f"{plugin.place}/stream", ALICE) as reader:
            connected = await reader.next()
            assert reader.status == 200
            assert reader.header(b"content-type") == b"text/event-stream; charset=utf-8"
            assert reader.header(b"cache-control") == b"no-store"
            assert reader.header(b"x-accel-buffering") == b"no"
        log = (await client.get(f"{plugin.place}/events", headers=ALICE)).json()
        assert connected == Told(
            log["position"],
            "connected",
            {
                "sessionCode": plugin.code,
                "revision": 1,
                "registered": True,
                "pluginStatus": "waiting",
                "tools": [{**tool("add"), "available": True}],
                "resumed": False,
            },
        )


@pytest.mark.requirement("C-6-stream-roles", "DYN-AC-10")
async def test_client_and_plugin_each_get_their_own_events() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        place = f"{plugin.place}/stream"
        async with talking(app, place, ALICE) as reader, talking(app, place, plugin.headers) as stream:
            calling = asyncio.create_task(
                client.post(f"{plugin.place}/tool-calls", headers=ALICE, json={"tool": "add"})
            )
            await stream.until("tool-request")
            calling.cancel()
            await stream.until("tool-cancelled")
            await asyncio.wait({calling})
            await plugin.update(removed=["add"])
            seen = [await reader.next() for _ in range(3)]
            assert [shape(told)[0] for told in seen] == ["connected", "plugin-status", "tool-availability-update"]
            assert (await stream.until("tool-availability-update")).data == seen[-1].data


@pytest.mark.requirement("C-6-event-ids", "C-6-metadata-first", "DYN-AC-3", "DYN-US-update", "DYN-UX-live")
async def test_events_come_once_in_order_with_rising_ids_and_metadata_is_never_behind_them() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        async with talking(app, f"{plugin.place}/stream", ALICE) as reader:
            told = [await reader.next()]
            for number in range(20):
                await plugin.update(added=[tool(f"tool_{number}")], reason=f"number {number}")
                told.append(await reader.next())
                assert (await plugin.metadata())["revision"] >= told[-1].data["revision"]
        ids = [event.id for event in told]
        assert ids == sorted(set(ids), key=lambda one: one or 0)
        assert [shape(event) for event in told[1:]] == [("tool-availability-update", 2 + n) for n in range(20)]


@pytest.mark.requirement("C-6-resume", "H-stream-reconnect")
async def test_a_reader_that_comes_back_gets_exactly_what_it_missed() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        place = f"{plugin.place}/stream"
        async with talking(app, place, ALICE) as reader:
            positions = [(await reader.next()).id]
            for number in range(3):
                await plugin.update(added=[tool(f"tool_{number}")])
                positions.append((await reader.next()).id)
        for index in range(4):
            async with talking(app, place, ALICE, positions[index]) as again:
                connected = await again.next()
                missed = [await again.next() for _ in positions[index + 1 :]]
                await plugin.update(added=[tool(f"more_{index}")])
                newest = await again.next()
            assert connected == Told(
                positions[index],
                "connected",
                {
                    "sessionCode": plugin.code,
                    "revision": 4 + index,
                    "registered": True,
                    "pluginStatus": "waiting",
                    "resumed": True,
                },
            )
            assert [event.id for event in missed] == positions[index + 1 :]
            assert newest.data["updates"]["added"] == [tool(f"more_{index}")]
            positions.append(newest.id)


@pytest.mark.requirement("C-6-resync", "H-stream-reconnect")
@pytest.mark.parametrize("known", ["999999", "-1", "", "1.5", "abc", "1e3", "9" * 40, "٣", "0x1", "1, 2", " 1"])
async def test_a_reader_whose_position_is_none_of_the_logs_begins_again(known: str) -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        async with talking(app, f"{plugin.place}/stream", ALICE, known) as reader:
            resync, connected = await reader.next(), await reader.next()
        assert (resync.event, resync.data) == ("resync", {"reason": "unknown_event_id"})
        assert (connected.event, connected.data["resumed"]) == ("connected", False)
        assert connected.data["tools"] == [{**tool("add"), "available": True}]
        assert resync.id == connected.id


@pytest.mark.requirement("C-6-resync", "C-6-limits", "H-stream-reconnect")
async def test_256_events_are_kept_and_one_that_is_older_is_a_resync() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        first = (await client.get(f"{plugin.place}/events", headers=ALICE)).json()["position"]
        for number in range(255):
            await plugin.update(modified=[tool("add", description=str(number))])
        place = f"{plugin.place}/stream"
        async with talking(app, place, ALICE, first) as reader:
            assert (await reader.next()).data["resumed"] is True
            assert [(await reader.next()).data["revision"] for _ in range(255)] == list(range(2, 257))
        await plugin.update(modified=[tool("add")])
        async with talking(app, place, ALICE, first) as reader:
            assert [(await reader.next()).event, (await reader.next()).event] == ["resync", "connected"]


@pytest.mark.requirement("C-6-slow-reader", "H-stream-slow", "H-stream-bounded")
async def test_a_reader_that_takes_nothing_holds_nobody_up_and_begins_again() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        place = f"{plugin.place}/stream"
        async with talking(app, place, ALICE) as slow, talking(app, place, ALICE) as quick:
            await slow.next()
            await quick.next()
            slow.taking.clear()
            for number in range(300):
                await plugin.update(modified=[tool("add", description=str(number))])
                assert (await quick.next()).data["revision"] == 2 + number
            slow.taking.set()
            stuck = await slow.next()
            resync, connected = await slow.next(), await slow.next()
            await plugin.update(removed=["add"])
            after = await slow.next()
        assert stuck.data["revision"] == 2, "what was on its way when the connection stopped"
        assert (resync.event, resync.data) == ("resync", {"reason": "slow_reader"})
        assert (connected.event, connected.data["revision"], after.data["revision"]) == ("connected", 301, 302)


@pytest.mark.requirement("C-6-lease", "H-relay-wrong-answers", "I3-bad-two-plugins")
async def test_a_request_goes_to_the_newest_stream_and_again_to_the_next_when_that_ends() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        place = f"{plugin.place}/stream"
        calls = f"{plugin.place}/tool-calls"
        async with talking(app, place, plugin.headers) as first:
            await first.until("plugin-status")
            async with talking(app, place, plugin.headers) as second:
                await second.until("connected")
                calling = asyncio.create_task(client.post(calls, headers=ALICE, json={"tool": "add", "id": "c1"}))
                leased = await second.until("tool-request")
            again = await first.until("tool-request")
            assert (again.data["id"], leased.data["attempt"], again.data["attempt"]) == (leased.data["id"], 1, 2)
            await plugin.answer(again.data["id"], result="once")
            assert (await calling).json()["output"] == "once"
            assert refusal(await plugin.answer(again.data["id"], result="twice"))[0] == 409


@pytest.mark.requirement("C-6-grace", "C-6-lease", "H-relay-plugin-gone")
async def test_a_call_whose_application_comes_back_within_the_grace_time_is_answered() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        place = f"{plugin.place}/stream"
        async with talking(app, place, plugin.headers) as first:
            await first.until("connected")
            calling = asyncio.create_task(
                client.post(f"{plugin.place}/tool-calls", headers=ALICE, json={"tool": "add", "id": "c1"})
            )
            lost = await first.until("tool-request")
        async with talking(app, place, plugin.headers, lost.id) as second:
            again = await second.until("tool-request")
            await plugin.answer(again.data["id"], result="back")
        assert (again.data["attempt"], (await calling).json()["output"]) == (2, "back")


@pytest.mark.requirement("C-6-detached", "H-relay-plugin-gone")
async def test_a_call_whose_application_stays_away_is_unavailable_after_the_grace_time() -> None:
    async with sessions_host(sessions={"grace": "50ms"}) as (_, app, client):
        plugin = await new_plugin(client)
        async with talking(app, f"{plugin.place}/stream", plugin.headers) as stream:
            await plugin.register(tool("add"))
            calling = asyncio.create_task(
                client.post(f"{plugin.place}/tool-calls", headers=ALICE, json={"tool": "add", "id": "c1"})
            )
            await stream.until("tool-request")
        answer = (await calling).json()
        assert (answer["status"], answer["metadata"]) == ("unavailable", {"code": "plugin_gone"})


@pytest.mark.requirement("C-6-stream-errors", "C-6-delete")
async def test_the_end_of_a_session_is_told_to_every_reader_and_to_those_who_wait() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        place = f"{plugin.place}/stream"
        async with talking(app, place, ALICE) as reader, talking(app, place, plugin.headers) as stream:
            await reader.until("plugin-status")
            calling = asyncio.create_task(
                client.post(f"{plugin.place}/tool-calls", headers=ALICE, json={"tool": "add", "id": "c1"})
            )
            await stream.until("tool-request")
            await client.delete(plugin.place, headers=ALICE)
            said = {
                "code": "session_ended",
                "message": "the session was ended; create a new one with POST /api/sessions",
            }
            for open_stream in (reader, stream):
                last = (await open_stream.rest())[-1]
                assert (last.event, last.data) == ("error", said)
        assert (await calling).json()["metadata"] == {"code": "session_ended"}


@pytest.mark.requirement("C-6-stream-roles")
async def test_asking_for_the_head_of_a_stream_opens_none() -> None:
    async with sessions_host() as (host, app, client):
        plugin = await new_plugin(client, tool("add"))
        head = EventTalk(f"{plugin.place}/stream", plugin.headers, "HEAD")
        await head.held_with(app)
        assert (head.status, head.body, head.header(b"content-type")) == (200, b"", b"text/event-stream; charset=utf-8")
        assert (await host.sessions.find(plugin.code, "t1")).plugin_status == "waiting"


@pytest.mark.requirement("H-trust-event-injection", "C-6-event-ids")
async def test_nobody_can_write_an_event_into_another() -> None:
    nasty = "x\n\nevent: error\ndata: {}\n\n\r\r\u2028 y"
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        async with talking(app, f"{plugin.place}/stream", ALICE) as reader:
            await reader.next()
            schema = {"type": "object", "title": nasty}
            await plugin.update(added=[tool("new", inputSchema=schema, description=nasty)], reason=nasty)
            told = await reader.next()
        sent = reader.body.decode().split("\n\n")
        assert (len(sent), told.event) == (3, "tool-availability-update")
        assert "\r" not in reader.body.decode()
        assert not {"\u2028", "\x85"} & set(reader.body.decode())
        read = "x\n\nevent: error\ndata: {}\n\n\n\n\n y"
        assert (told.data["reason"], told.data["updates"]["added"][0]["inputSchema"]["title"]) == (read, read)


@pytest.mark.requirement("C-6-heartbeat-event", "C-6-stream-errors")
def test_a_quiet_stream_beats_every_15_seconds() -> None:
    async def scenario(jump: Jump) -> None:
        async with sessions_host() as (_, app, client):
            plugin = await new_plugin(client, tool("add"))
            async with talking(app, f"{plugin.place}/stream", ALICE) as reader:
                connected = await reader.next()
                for _ in range(2):
                    jump(HEARTBEAT_S)
                    beat = await reader.next()
                    assert (beat.id, beat.event, list(beat.data)) == (connected.id, "heartbeat", ["timestamp"])

    on_jumping_loop(scenario)


@pytest.mark.requirement("C-6-stream-errors", "C-5-scope-read", "I3-3-recheck")
def test_a_stream_ends_when_its_callers_key_is_taken_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolplug.audit")
    keys: list[Json] = [
        {"key": "root-key", "subject": "root", "scopes": ["admin", "operator"]},
        {"key": "alice-key", "subject": "alice", "tenant": "t1"},
        {"key": "narrow-key", "subject": "narrow", "tenant": "t1"},
    ]
    path = tmp_path / "providers.yaml"

    def write(kept: list[Json]) -> None:
        path.write_text(json.dumps({"store": "memory://", "auth": {"api_keys": kept}}))

    async def scenario(jump: Jump) -> None:
        async with open_host(path, environ={}) as host:
            app = create_app(host)
            async with client_of(app) as client:
                plugin = await new_plugin(client, tool("add"))
                place = f"{plugin.place}/stream"
                narrow = {"X-API-Key": "narrow-key"}
                async with (
                    talking(app, place, ALICE) as gone,
                    talking(app, place, narrow) as lessened,
                    talking(app, place, plugin.headers) as stream,
                ):
                    for open_stream in (gone, lessened, stream):
                        await open_stream.until("plugin-status")
                    write([keys[0], {**keys[2], "scopes": ["tools:call"]}])
                    assert (await client.post("/v1/reload", headers=ROOT)).status_code == 200
                    for _ in range(int(RECHECK_S / HEARTBEAT_S)):
                        jump(HEARTBEAT_S)
                        await stream.until("heartbeat")
                    ends = [(await open_stream.rest())[-1] for open_stream in (gone, lessened)]
                    assert [(end.event, end.data["code"]) for end in ends] == [("error", "auth_expired")] * 2
                    await plugin.update(removed=["add"])
                    assert (await stream.until("tool-availability-update")).data["revision"] == 2

    write(keys)
    on_jumping_loop(scenario)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "toolplug.audit"]
    refused = sorted(line["outcome"] for line in lines if line["event"] == "http.request")
    assert refused == ["authentication_required", "insufficient_scope"]


@pytest.mark.requirement("C-6-stream-errors")
def test_a_stream_whose_credential_still_counts_goes_on() -> None:
    async def scenario(jump: Jump) -> None:
        async with sessions_host() as (_, app, client):
            plugin = await new_plugin(client, tool("add"))
            async with talking(app, f"{plugin.place}/stream", ALICE) as reader:
                await reader.next()
                for number in range(2 * int(STUCK_S / HEARTBEAT_S)):
                    jump(HEARTBEAT_S)
                    await reader.until("heartbeat")
                    await plugin.update(modified=[tool("add", description=str(number))])
                    assert (await reader.until("tool-availability-update")).data["revision"] == 2 + number

    on_jumping_loop(scenario)


@pytest.mark.requirement("H-stream-slow")
def test_a_connection_that_takes_nothing_for_five_minutes_is_given_up() -> None:
    async def scenario(jump: Jump) -> None:
        async with sessions_host() as (host, app, client):
            plugin = await new_plugin(client, tool("add"))
            session = await host.sessions.find(plugin.code, "t1")
            async with talking(app, f"{plugin.place}/stream", plugin.headers) as dead:
                await dead.until("plugin-status")
                dead.taking.clear()
                await plugin.update(removed=["add"])
                waited_s = 0.0
                while session.plugin_status == "attached":
                    jump(HEARTBEAT_S)
                    waited_s += HEARTBEAT_S
                    await asyncio.sleep(0)
                assert waited_s > STUCK_S
                await dead.over.wait()
                assert session.plugin_status == "waiting"

    on_jumping_loop(scenario)


@pytest.mark.requirement("H-stream-slow")
def test_a_connection_that_takes_nothing_is_given_up_also_when_its_session_has_ended() -> None:
    async def scenario(jump: Jump) -> None:
        async with sessions_host() as (_, app, client):
            plugin = await new_plugin(client, tool("add"))
            async with talking(app, f"{plugin.place}/stream", ALICE) as dead:
                await dead.next()
                dead.taking.clear()
                await plugin.update(removed=["add"])
                await asyncio.sleep(0)
                assert (await client.delete(plugin.place, headers=ALICE)).status_code == 204
                waited_s = 0.0
                while not dead.over.is_set():
                    jump(HEARTBEAT_S)
                    waited_s += HEARTBEAT_S
                    await asyncio.sleep(0)
                    assert waited_s <= 10 * STUCK_S
                assert waited_s > STUCK_S

    on_jumping_loop(scenario)


@pytest.mark.requirement("H-stream-slow", "C-10-signals")
async def test_a_reader_that_was_too_slow_ends_with_the_host() -> None:
    async with sessions_host() as (host, app, client):
        plugin = await new_plugin(client, tool("add"))
        async with talking(app, f"{plugin.place}/stream", ALICE) as slow:
            await slow.next()
            slow.taking.clear()
            for number in range(300):
                await plugin.update(modified=[tool("add", description=str(number))])
            host.stop()
            slow.taking.set()
            assert [told.event for told in await slow.rest()] == ["tool-availability-update"]
