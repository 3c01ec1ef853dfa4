"""The other side of a session: a process that calls its tools and follows its events, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from anyio import fail_after
from httpx2 import AsyncClient, Response

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Heard:
    """One event of a session's stream."""

    name: str
    data: Any


class Following:
    """An open stream of a session, as a client reads it."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self, name: str) -> Any:
        """The data of the next event of this name; those before it are passed over."""
        with fail_after(PATIENCE_S):
            while (heard := await self._event()).name != name:
                pass
        return heard.data

    async def until_status(self, status: str) -> None:
        """Wait until the application is said to be so."""
        while (await self.next("plugin-status"))["status"] != status:
            pass

    async def _event(self) -> Heard:
        name, data = "", ""
        async for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = value
            elif not line and data:
                return Heard(name, json.loads(data))
        raise AssertionError("the stream has ended")


class Caller:
    """Whoever calls the tools of sessions, without a page."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = AsyncClient(base_url=url, timeout=PATIENCE_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def call(self, code: str, tool: str, /, **arguments: object) -> Any:
        """What a call of the session's tool comes to."""
        body = {"tool": tool, "arguments": arguments}
        return (await self._http.post(f"/api/sessions/{code}/tool-calls", json=body)).json()

    async def metadata(self, code: str) -> Any:
        """The session as its clients see it."""
        return (await self._http.get(f"/api/sessions/{code}/metadata")).json()

    async def offered(self, code: str) -> set[str]:
        """The names of the tools that a model is offered with this session."""
        answered = await self._http.get("/v1/tools", params={"session": code})
        return {tool["function"]["name"] for tool in answered.json()["tools"]}

    async def send(self, method: str, path: str, **given: Any) -> Response:
        """Any other request."""
        return await self._http.request(method, path, **given)

    @asynccontextmanager
    async def following(self, code: str) -> AsyncIterator[Following]:
        """An open stream of the session; its `connected` has been read."""
        async with self._http.stream("GET", f"/api/sessions/{code}/stream", timeout=None) as answered:
            assert answered.status_code == 200, await answered.aread()
            opened = Following(answered.aiter_lines())
            await opened.next("connected")
            yield opened
