"""An application that lends its tools: it reads its stream, connects again when that ends, and answers requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

PLUGIN = {"pluginType": "table", "tools": [{"name": "add", "description": "Add.", "inputSchema": {"type": "object"}}]}
PAUSE_S = 0.1


class Application:
    """One session and its plugin. `events` has what its streams have received: id, event, data."""

    def __init__(self, client: httpx2.AsyncClient, created: dict[str, Any]) -> None:
        self.client = client
        self.code: str = created["code"]
        self.place = f"/api/sessions/{self.code}"
        self.token = {"Authorization": f"Bearer {created['pluginToken']}"}
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.answers: list[int] = []
        self._news = asyncio.Condition()

    async def post(self, path: str, body: object) -> httpx2.Response:
        """Send something as the plugin."""
        return await self.client.post(f"{self.place}/{path}", headers=self.token, json=body)

    async def call(self, name: str = "add", **arguments: object) -> httpx2.Response:
        """Call a tool as a client of the session."""
        return await self.client.post(f"{self.place}/tool-calls", json={"tool": name, "arguments": arguments})

    async def metadata(self) -> dict[str, Any]:
        """Return what the session offers."""
        return (await self.client.get(f"{self.place}/metadata")).json()

    def named(self, event: str) -> list[dict[str, Any]]:
        """Return the data of the events of this name."""
        return [data for _, name, data in self.events if name == event]

    async def heard(self, event: str, count: int = 1) -> dict[str, Any]:
        """Wait until so many events of this name have come; return the data of the last of them."""
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: len(self.named(event)) >= count)
        return self.named(event)[count - 1]

    async def run(self, answer: Callable[[dict[str, Any]], object] | None) -> None:
        """Read streams, one after the other, each from the last event on; answer requests if there is an answer."""
        while True:
            last = {"Last-Event-ID": self.events[-1][0]} if self.events else {}
            try:
                async with self.client.stream("GET", f"{self.place}/stream", headers={**self.token, **last}) as stream:
                    if stream.status_code == 410:
                        return
                    async for event_id, event, data in _events(stream):
                        await self._take(event_id or (self.events[-1][0] if self.events else ""), event, data)
                        if event == "tool-request" and answer is not None:
                            done = await self.post("tool-results", {"id": data["id"], "result": answer(data)})
                            self.answers.append(done.status_code)
            except httpx2.HTTPError:
                await asyncio.sleep(PAUSE_S)

    async def _take(self, event_id: str, event: str, data: dict[str, Any]) -> None:
        async with self._news:
            self.events.append((event_id, event, data))
            self._news.notify_all()


async def _events(stream: httpx2.Response) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
    fields: dict[str, str] = {}
    async for line in stream.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}


@asynccontextmanager
async def application(
    client: httpx2.AsyncClient, answer: Callable[[dict[str, Any]], object] | None = None, **body: object
) -> AsyncIterator[Application]:
    """A session with the tool `add`, whose plugin is connected."""
    created = (await client.post("/api/sessions", json=body)).json()
    found = Application(client, created)
    registered = await found.post("register-tools", PLUGIN)
    assert registered.status_code == 201, registered.text
    reading = asyncio.create_task(found.run(answer))
    try:
        await found.heard("connected")
        yield found
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
