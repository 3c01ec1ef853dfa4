"""The clients of one session over HTTP: they write, read, follow, call and answer, and record what they see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

import httpx2
from tests.nemeses.fleet import ANSWER_S, Fleet, Host
from tests.nemeses.history import History, Read
from tests.nemeses.recording import UPDATE, StreamReader, Writer, entry, numbers, writers

WRITERS, READERS, FOLLOWERS, CALLERS = 2, 2, 2, 3
CALL_S = 3.0
REST_S = 0.25
"""The longest pause of a client: without it three hosts take all of two cores, and more is no other history."""
AFTER_UNKNOWN_S = 2.0
SCHEMA = {"type": "object"}


class Outage(NamedTuple):
    """A time in which a host could not reach the store, or not well."""

    began: float
    ended: float


@dataclass(kw_only=True)
class HttpCall:
    """One call to the application: its answers that were acknowledged with 200, and what its caller got."""

    number: int
    began: float
    accepted: list[str] = field(default_factory=list[str])
    status: str = ""
    output: str = ""
    ended: float | None = None

    def violation(self, outages: Sequence[Outage]) -> str | None:
        """Return what is wrong with it, if its caller got an answer.

        A host that cannot reach the store at the deadline cannot know of an answer that another one has accepted.
        """
        if len(self.accepted) > 1:
            return f"{self}: more than one answer was accepted"
        if self.ended is None or not self.accepted or (self.status, self.output) == ("success", self.accepted[0]):
            return None
        ended = self.ended
        if self.status != "success" and any(outage.began <= ended <= outage.ended + ANSWER_S for outage in outages):
            return None
        return f"{self}: its caller did not get the accepted answer"


class Clients:
    """All clients of one session, which begin with `run` and end with its block."""

    def __init__(self, fleet: Fleet, client: httpx2.AsyncClient, created: dict[str, Any]) -> None:
        self.history = History()
        self.calls: dict[int, HttpCall] = {}
        self._fleet = fleet
        self._client = client
        self._place = f"/api/sessions/{created['code']}"
        self._token = {"Authorization": f"Bearer {created['pluginToken']}"}
        self._sent: set[asyncio.Task[None]] = set()
        self._answers = count()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Let all of them do what they do during this block."""
        tasks = [
            *(asyncio.create_task(self._write(index)) for index in range(WRITERS)),
            *(asyncio.create_task(self._read()) for _ in range(READERS)),
            *(asyncio.create_task(self._follow(f"stream {index}")) for index in range(FOLLOWERS)),
            asyncio.create_task(self._lend()),
        ]
        calling = [asyncio.create_task(self._call(index)) for index in range(CALLERS)]
        try:
            yield
        finally:
            for group in (calling, tasks, [*self._sent]):
                for task in group:
                    task.cancel()
                await asyncio.gather(*group, return_exceptions=True)
        for task in (*tasks, *calling):
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]

    async def last_look(self) -> None:
        """Read everything once more, at each host."""
        for host in self._fleet.hosts:
            await self.read_at(host)
            page = (await self._client.get(f"{host.url}{self._place}/events")).raise_for_status().json()
            after = None
            for event in page["events"]:
                if event["event"] == UPDATE:
                    self.history.entries.append(entry(f"log of {host.url}", event["id"], after, event["data"]))
                    after = event["data"]["revision"]

    def violations(self, outages: Sequence[Outage]) -> list[str]:
        """Return what must not have happened."""
        return [*self.history.violations(), *filter(None, (call.violation(outages) for call in self.calls.values()))]

    async def read_at(self, host: Host | None = None) -> httpx2.Response:
        """Read the session's metadata, at this host or any."""
        began = monotonic()
        where = "" if host is None else host.url
        answer = await self._client.get(f"{where}{self._place}/metadata")
        if answer.status_code == 200:
            found = answer.json()
            self.history.reads.append(
                Read(
                    process=where or str(answer.request.url.port),
                    began=began,
                    ended=monotonic(),
                    revision=found["revision"],
                    numbers=numbers(found["tools"]),
                )
            )
        else:
            assert answer.status_code == 503, answer.text
        return answer

    async def update(self, tool: str, number: int, url: str = "") -> httpx2.Response:
        """Write a number into a tool."""
        changed = {"name": tool, "description": str(number), "inputSchema": SCHEMA}
        body = {"toolUpdates": {"modified": [changed]}, "reason": "next"}
        return await self._client.post(f"{url}{self._place}/update-tools", headers=self._token, json=body)

    async def _write(self, index: int) -> None:
        writer = Writer(self.history, index, monotonic)
        while True:
            await asyncio.sleep(self._fleet.random.uniform(0, REST_S))
            tool, number = writer.next()
            try:
                answer = await self.update(tool, number)
            except httpx2.HTTPError:
                answer = None
            except asyncio.CancelledError:
                writer.unknown()
                raise
            if answer is not None and answer.status_code == 200:
                writer.acknowledged(answer.json()["revision"])
            elif answer is not None and answer.status_code < 500:
                raise AssertionError(answer.text)
            elif writer.unknown():
                await asyncio.sleep(AFTER_UNKNOWN_S)
            else:
                return

    async def _read(self) -> None:
        while True:
            await asyncio.sleep(self._fleet.random.uniform(0, REST_S))
            with suppress(httpx2.HTTPError):
                await self.read_at()

    async def _follow(self, name: str) -> None:
        reader = StreamReader(self.history, name, monotonic)
        while True:
            reader.opens()
            with suppress(httpx2.HTTPError):
                async for event_id, event, data in self._events({}, reader.last_id):
                    reader.take(event_id, event, data)
            await asyncio.sleep(REST_S)

    async def _events(self, headers: dict[str, str], last_id: str) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
        if last_id:
            headers = {**headers, "Last-Event-ID": last_id}
        async with self._client.stream("GET", f"{self._place}/stream", headers=headers) as stream:
            fields: dict[str, str] = {}
            async for line in stream.aiter_lines():
                name, _, value = line.partition(": ")
                if line:
                    fields[name] = value
                elif "event" in fields:
                    yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
                    fields = {}

    async def _call(self, index: int) -> None:
        number = index
        while True:
            await asyncio.sleep(self._fleet.random.uniform(0, REST_S))
            number += CALLERS
            call = self.calls[number] = HttpCall(number=number, began=monotonic())
            body = {"tool": "a", "arguments": {"number": number}, "timeoutMs": int(CALL_S * 1000)}
            with suppress(httpx2.HTTPError):
                answer = await self._client.post(f"{self._place}/tool-calls", json=body, timeout=CALL_S + ANSWER_S)
                if answer.status_code == 200:
                    call.status, call.output = answer.json()["status"], answer.json()["output"]
                    call.ended = monotonic()

    async def _lend(self) -> None:
        """Be the application: read requests, and answer each once or twice, anywhere."""
        last_id = ""
        while True:
            with suppress(httpx2.HTTPError):
                async for event_id, event, data in self._events(self._token, last_id):
                    last_id = event_id or last_id
                    if event == "tool-request":
                        for _ in range(self._fleet.random.choice([1, 1, 2])):
                            task = asyncio.create_task(self._answer(data, next(self._answers)))
                            self._sent.add(task)
                            task.add_done_callback(self._sent.discard)
            await asyncio.sleep(REST_S)

    async def _answer(self, request: dict[str, Any], index: int) -> None:
        number = request["arguments"]["number"]
        answer = f"{number}/{index}"
        await asyncio.sleep(self._fleet.random.choice([0, 0, 0.05, 0.5]))
        body = {"id": request["id"], "result": answer}
        for _ in range(3):
            with suppress(httpx2.HTTPError):
                done = await self._client.post(f"{self._place}/tool-results", headers=self._token, json=body)
                if done.status_code == 200:
                    self.calls[number].accepted.append(answer)
                if done.status_code < 500:
                    return
            await asyncio.sleep(REST_S)


@asynccontextmanager
async def clients(fleet: Fleet) -> AsyncIterator[Clients]:
    """A session with its tools, and its clients, which do nothing yet."""
    async with fleet.client() as client:
        created = (await client.post("/api/sessions", json={})).raise_for_status().json()
        found = Clients(fleet, client, created)
        tools = [{"name": name, "description": "", "inputSchema": SCHEMA} for name in [*writers(WRITERS), "a"]]
        body = {"pluginType": "table", "tools": tools}
        place = f"/api/sessions/{created['code']}/register-tools"
        token = {"Authorization": f"Bearer {created['pluginToken']}"}
        (await client.post(place, headers=token, json=body)).raise_for_status()
        yield found
