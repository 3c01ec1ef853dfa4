"""Following a session: a snapshot, then each change, and a new snapshot wherever one could have been missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from httpx2 import AsyncClient
from tests.client.fixtures import QUICK
from tests.client.scripted_host import CODE, WAIT_S, Said, ScriptedHost, Stream, refused

from toolplug.client import (
    HostUnreachable,
    OfferedTool,
    SessionOver,
    Snapshot,
    StatusChanged,
    ToolsChanged,
    ToolUpdates,
    watch,
)
from toolplug.client.events import Change

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {}}
ONE = {"name": "one", "description": "The first.", "inputSchema": SCHEMA, "available": False, "reason": "shadowed"}
TWO = {"name": "two", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
CONNECTED = {"sessionCode": CODE, "revision": 1, "registered": True, "pluginStatus": "attached", "tools": [ONE]}
UPDATE = {
    "sessionCode": CODE,
    "updates": {"added": [TWO], "removed": ["one"], "modified": []},
    "revision": 2,
    "timestamp": "2026-01-02T03:04:05Z",
    "reason": "selected",
}
STATUS = {"sessionCode": CODE, "status": "detached", "timestamp": "2026-01-02T03:04:06Z"}

ONE_OFFERED = OfferedTool(name="one", description="The first.", inputSchema=SCHEMA, available=False, reason="shadowed")
TWO_OFFERED = OfferedTool(name="two", inputSchema=SCHEMA, annotations={"readOnlyHint": True})
SNAPSHOT = Snapshot(sessionCode=CODE, revision=1, registered=True, pluginStatus="attached", tools=(ONE_OFFERED,))
CHANGED = ToolsChanged(
    sessionCode=CODE,
    updates=ToolUpdates(added=(TWO_OFFERED,), removed=("one",)),
    revision=2,
    timestamp="2026-01-02T03:04:05Z",
    reason="selected",
)
DETACHED = StatusChanged(sessionCode=CODE, status="detached", timestamp="2026-01-02T03:04:06Z")


class Watching:
    """One watcher and the stream that it has opened."""

    def __init__(self, host: ScriptedHost, changes: AsyncGenerator[Change]) -> None:
        self._host = host
        self._changes = changes

    async def begun(self) -> tuple[asyncio.Task[Change], Stream]:
        first = asyncio.create_task(anext(self._changes))
        return first, await self._host.stream()

    async def next(self) -> Change:
        async with asyncio.timeout(WAIT_S):
            return await anext(self._changes)


@pytest.mark.process
@pytest.mark.requirement("DYN-US-notify", "C-12-client")
async def test_a_snapshot_comes_first_and_then_every_change_as_a_value(host: ScriptedHost) -> None:
    async with aclosing(watch(host.url, CODE, api_key="alice-key", backoff=QUICK)) as changes:
        watching = Watching(host, changes)
        first, stream = await watching.begun()
        assert stream.heard.path == f"/api/sessions/{CODE}/stream"
        assert stream.heard.headers["authorization"] == "Bearer alice-key"
        await stream.send("connected", CONNECTED, 1)
        await stream.send("tool-availability-update", UPDATE, 2)
        await stream.send("heartbeat", {"timestamp": "2026-01-02T03:04:05Z"}, 2)
        await stream.send("plugin-status", STATUS, 3)
        assert [await first, await watching.next(), await watching.next()] == [SNAPSHOT, CHANGED, DETACHED]


@pytest.mark.process
async def test_a_watcher_that_goes_on_where_it_was_hears_no_second_snapshot(host: ScriptedHost) -> None:
    async with aclosing(watch(host.url, CODE, backoff=QUICK)) as changes:
        watching = Watching(host, changes)
        first, stream = await watching.begun()
        assert "authorization" not in stream.heard.headers
        await stream.send("connected", CONNECTED, 1)
        assert await first == SNAPSHOT
        then, _ = asyncio.create_task(watching.next()), stream.cut()
        newer = await host.stream()
        assert newer.heard.headers["last-event-id"] == "1"
        await newer.send("connected", {"sessionCode": CODE, "resumed": True, "revision": 1}, 1)
        await newer.send("tool-availability-update", UPDATE, 2)
        assert await then == CHANGED


@pytest.mark.process
@pytest.mark.parametrize("unreadable", ["{half", {"sessionCode": CODE, "revision": 2}, []])
async def test_where_a_change_was_missed_a_snapshot_stands_in_its_place(host: ScriptedHost, unreadable: object) -> None:
    async with aclosing(watch(host.url, CODE, backoff=QUICK)) as changes:
        watching = Watching(host, changes)
        first, stream = await watching.begun()
        await stream.send("connected", CONNECTED, 1)
        assert await first == SNAPSHOT
        await stream.send("resync", {"reason": "too slow"}, 5)
        await stream.send("connected", CONNECTED, 5)
        assert await watching.next() == SNAPSHOT
        await stream.send("tool-availability-update", unreadable, 6)
        then = asyncio.create_task(watching.next())
        newer = await host.stream()
        assert "last-event-id" not in newer.heard.headers
        await newer.send("connected", CONNECTED, 7)
        assert await then == SNAPSHOT


@pytest.mark.process
async def test_a_watch_ends_with_the_session_and_says_why(host: ScriptedHost) -> None:
    async with aclosing(watch(host.url, CODE, backoff=QUICK)) as changes:
        first, stream = await Watching(host, changes).begun()
        await stream.send("error", {"code": "session_expired", "message": "the session has expired"}, 1)
        with pytest.raises(SessionOver, match="the session has expired"):
            await first


@pytest.mark.process
async def test_a_watch_that_cannot_begin_says_why_at_once(host: ScriptedHost) -> None:
    for said, error in [(Said(0), HostUnreachable), (refused(404, "session_not_found"), SessionOver)]:
        host.says("stream", said)
        with pytest.raises(error):
            await anext(watch(host.url, CODE, backoff=QUICK))
    assert len(host.heard) == 2


@pytest.mark.process
async def test_leaving_a_watch_closes_its_connection_but_no_foreign_client(host: ScriptedHost) -> None:
    async with AsyncClient() as client:
        async with aclosing(watch(host.url, CODE, http=client, backoff=QUICK)) as changes:
            first, stream = await Watching(host, changes).begun()
            await stream.send("connected", CONNECTED, 1)
            await first
        await stream.left()
        assert not client.is_closed


@pytest.mark.requirement("DYN-UX-live")
def test_a_snapshot_and_a_change_make_the_next_snapshot() -> None:
    changed = SNAPSHOT.after(CHANGED)
    assert changed == SNAPSHOT.model_copy(update={"revision": 2, "tools": (TWO_OFFERED,)})
    other = OfferedTool(name="two", description="Another.", inputSchema=SCHEMA)
    again = ToolUpdates(modified=(other,), added=(ONE_OFFERED,))
    newer = ToolsChanged(sessionCode=CODE, updates=again, revision=3, timestamp="")
    assert changed.after(newer).tools == (other, ONE_OFFERED)
    default = SNAPSHOT.model_copy(update={"registered": False})
    assert default.after(newer).tools == (other, ONE_OFFERED)


@pytest.mark.requirement("DYN-UX-live")
def test_tools_come_and_go_with_their_application_unless_something_else_stands_in_their_way() -> None:
    both = SNAPSHOT.model_copy(update={"tools": (ONE_OFFERED, TWO_OFFERED)})
    away = both.after(DETACHED)
    assert (away.plugin_status, away.tools[0]) == ("detached", ONE_OFFERED)
    assert (away.tools[1].available, away.tools[1].reason) == (False, "plugin_gone")
    back = DETACHED.model_copy(update={"status": "attached"})
    assert away.after(back) == both


def test_a_tool_as_it_was_registered_has_nothing_that_the_host_added() -> None:
    assert ONE_OFFERED.definition() == {"name": "one", "description": "The first.", "inputSchema": SCHEMA}
    assert TWO_OFFERED.definition() == {key: TWO[key] for key in ("name", "inputSchema", "annotations")}
