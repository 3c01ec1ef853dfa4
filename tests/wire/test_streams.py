"""Event streams of sessions: opened, left and resumed at whichever process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.wire.application import Application, application
from tests.wire.test_registration import created, tool

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]

Event = tuple[int | None, str, dict[str, Any]]


class Reader:
    """An open stream."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> Event:
        """The next event but heartbeats."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(30):
            async for line in self._lines:
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif fields.get("event") not in (None, "heartbeat"):
                    return int(fields["id"]) if "id" in fields else None, fields["event"], json.loads(fields["data"])
                else:
                    fields = {}
        raise EOFError

    async def until(self, name: str) -> Event:
        """The next event of this name."""
        while (event := await self.next())[1] != name:
            pass
        return event


@asynccontextmanager
async def reading(
    client: httpx2.AsyncClient, app: Application, after: object = None, headers: dict[str, str] | None = None
) -> AsyncIterator[Reader]:
    """A stream of the session, for a client."""
    given = {**(headers or {}), **({} if after is None else {"Last-Event-ID": str(after)})}
    async with client.stream("GET", f"{app.place}/stream", headers=given) as answer:
        assert answer.status_code == 200
        yield Reader(answer)


async def update(app: Application, number: int) -> None:
    """Add a tool."""
    changes = {"toolUpdates": {"added": [tool(f"t{number}")]}, "reason": f"r{number}"}
    assert (await app.post("update-tools", changes)).status_code == 200


async def registered(client: httpx2.AsyncClient) -> Application:
    """A session with one tool, whose plugin is not connected."""
    app = await created(client)
    await app.post("register-tools", {"tools": [tool("one")]})
    return app


async def test_a_stream_begins_with_a_snapshot(client: httpx2.AsyncClient) -> None:
    app = await registered(client)
    for _ in range(3):
        async with reading(client, app) as reader:
            assert reader.answer.headers["content-type"].startswith("text/event-stream")
            _, name, data = await reader.next()
            assert (name, data["revision"], [each["name"] for each in data["tools"]]) == ("connected", 1, ["one"])


async def test_readers_at_all_processes_are_told_of_each_update(client: httpx2.AsyncClient) -> None:
    app = await registered(client)
    async with (
        reading(client, app) as first,
        reading(client, app) as second,
        reading(client, app) as third,
        reading(client, app) as fourth,
    ):
        readers = (first, second, third, fourth)
        for reader in readers:
            await reader.until("connected")
        for number in range(5):
            await update(app, number)
        told = [[await reader.until("tool-availability-update") for _ in range(5)] for reader in readers]
        assert told[0] == told[1] == told[2] == told[3]
        assert [(data["revision"], data["reason"]) for _, _, data in told[0]] == [(n + 2, f"r{n}") for n in range(5)]
        assert [data["updates"]["added"][0]["name"] for _, _, data in told[0]] == [f"t{n}" for n in range(5)]
        ids = [number for number, _, _ in told[0]]
        assert ids == sorted({*ids})


async def test_a_stream_is_resumed_at_another_process(client: httpx2.AsyncClient) -> None:
    app = await registered(client)
    async with reading(client, app) as reader:
        last, _, _ = await reader.next()
        seen: list[int] = []
    for number in range(6):
        await update(app, number)
        async with reading(client, app, last) as reader:
            _, name, data = await reader.next()
            assert (name, data["resumed"]) == ("connected", True)
            last, _, data = await reader.until("tool-availability-update")
            seen.append(data["revision"])
    assert seen == [2, 3, 4, 5, 6, 7]


async def test_what_was_missed_comes_once_and_in_order(client: httpx2.AsyncClient) -> None:
    app = await registered(client)
    async with reading(client, app) as reader:
        last, _, _ = await reader.next()
    for number in range(6):
        await update(app, number)
    for _ in range(3):
        async with reading(client, app, last) as reader:
            assert (await reader.next())[1] == "connected"
            revisions = [(await reader.until("tool-availability-update"))[2]["revision"] for _ in range(6)]
            assert revisions == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("after", ["x", "-1", "9" * 15, "1"])
async def test_a_position_that_the_log_has_not_begins_anew(client: httpx2.AsyncClient, after: str) -> None:
    app = await registered(client)
    async with reading(client, app, after) as reader:
        assert (await reader.next())[1] == "resync"
        _, name, data = await reader.next()
        assert (name, data["revision"], data.get("resumed", False)) == ("connected", 1, False)


async def test_metadata_show_what_an_event_says_when_it_arrives(client: httpx2.AsyncClient) -> None:
    app = await registered(client)
    async with reading(client, app) as reader:
        for number in range(6):
            await update(app, number)
            _, _, data = await reader.until("tool-availability-update")
            assert (await app.metadata())["revision"] >= data["revision"]


async def test_the_log_can_be_read_without_a_stream(client: httpx2.AsyncClient) -> None:
    app = await registered(client)
    begun = (await client.get(f"{app.place}/events")).json()["position"]
    for number in range(4):
        await update(app, number)
        found = (await client.get(f"{app.place}/events?after={begun}")).json()
        updates = [event["data"]["revision"] for event in found["events"] if event["event"].startswith("tool-avail")]
        assert updates == [*range(2, number + 3)]
        assert found["resync"] is False
    assert (await client.get(f"{app.place}/events?after={found['position']}")).json()["events"] == []


async def test_streams_end_with_their_session(client: httpx2.AsyncClient) -> None:
    app = await registered(client)
    async with reading(client, app) as first, reading(client, app) as second, reading(client, app) as third:
        for reader in (first, second, third):
            await reader.until("connected")
        assert (await client.delete(app.place)).status_code == 204
        for reader in (first, second, third):
            assert (await reader.until("error"))[2]["code"] == "session_ended"
            with pytest.raises(EOFError):
                await reader.next()


async def test_readers_are_told_whether_the_application_is_there(client: httpx2.AsyncClient) -> None:
    app = await registered(client)
    async with reading(client, app) as first, reading(client, app) as second:
        for reader in (first, second):
            await reader.until("connected")
        async with reading(client, app, headers=app.token) as plugin:
            await plugin.until("connected")
            for reader in (first, second):
                assert (await reader.until("plugin-status"))[2]["status"] == "attached"
            for _ in range(3):
                assert (await app.metadata())["pluginStatus"] == "attached"
        for reader in (first, second):
            assert (await reader.until("plugin-status"))[2]["status"] == "detached"
    for _ in range(3):
        found = await app.metadata()
        assert (found["pluginStatus"], found["tools"][0]["available"]) == ("detached", False)
        assert (await app.call("one")).json()["status"] == "unavailable"
        assert '"one"' not in (await client.get(f"/v1/tools?session={app.code}")).text
    async with reading(client, app, headers=app.token) as plugin:
        await plugin.until("connected")
        for _ in range(3):
            assert (await app.metadata())["tools"][0]["available"] is True


async def test_requests_are_for_the_newest_stream_of_the_application(client: httpx2.AsyncClient) -> None:
    async with application(client) as app:
        for number in range(1, 5):
            async with reading(client, app, headers=app.token) as newer:
                await newer.until("connected")
                calling = asyncio.create_task(app.call(n=number))
                _, _, request = await newer.until("tool-request")
                assert request["arguments"] == {"n": number}
                assert (await app.post("tool-results", {"id": request["id"], "result": number})).status_code == 200
                assert (await calling).json()["structured"] == number
        assert app.named("tool-request") == []


async def test_clients_are_not_sent_requests(client: httpx2.AsyncClient) -> None:
    async with application(client, lambda request: "done") as app, reading(client, app) as reader:
        await reader.until("connected")
        assert (await app.call()).json()["output"] == "done"
        await update(app, 1)
        assert (await reader.next())[1] in ("plugin-status", "tool-availability-update")
