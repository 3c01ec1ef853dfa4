"""A host that does what a test says, byte for byte: what a real one cannot be made to show."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from toolplug.catalog.call import NO_TRACE_CONTEXT

CODE = "ABCDEFGH"
TOKEN = "tps_ABCDEFGH_secret"
WAIT_S = 20.0


class Heard(NamedTuple):
    """One request; `body` is its JSON."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class Said(NamedTuple):
    """One answer; `body` is sent as it is when it is bytes, else as JSON."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = {}


class Stream:
    """An event stream that a client has opened."""

    def __init__(self, heard: Heard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard = heard
        self._reader = reader
        self._writer = writer

    async def send(self, event: str, data: object, position: int | str = "") -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        await self.write(f"id: {position}\nevent: {event}\ndata: {text}\n\n".encode())

    async def request(
        self,
        request_id: str,
        tool: str,
        attempt: int = 1,
        position: int = 1,
        trace_context: Mapping[str, str] = NO_TRACE_CONTEXT,
        **arguments: Any,
    ) -> None:
        data = {"id": request_id, "tool": tool, "arguments": arguments, "deadline": "", "attempt": attempt}
        data |= trace_context
        await self.send("tool-request", data, position)

    async def write(self, raw: bytes) -> None:
        self._writer.write(raw)
        await self._writer.drain()

    def close(self) -> None:
        """End it in order."""
        self._writer.close()

    def cut(self) -> None:
        """Break it."""
        self._writer.transport.abort()

    async def left(self) -> None:
        """Wait until the client has gone."""
        async with asyncio.timeout(WAIT_S):
            await self._reader.read()


class ScriptedHost:
    """Answers like a host that agrees with everything, unless `says` has put other answers before that."""

    def __init__(self) -> None:
        self.url = ""
        self.revision = 0
        self.heard: list[Heard] = []
        self._streams: asyncio.Queue[Stream] = asyncio.Queue()
        self._results: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._script: dict[str, deque[Said]] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def says(self, route: str, *answers: Said) -> None:
        """Answer the next requests whose path ends like this so; status 0 cuts the connection."""
        self._script.setdefault(route, deque()).extend(answers)

    def holds(self, route: str) -> asyncio.Event:
        """Answer requests of this route only after the event."""
        return self._held.setdefault(route, asyncio.Event())

    def asked(self, route: str) -> list[Heard]:
        """The requests so far whose path ends like this."""
        return [heard for heard in self.heard if heard.path.endswith(route)]

    async def stream(self) -> Stream:
        """The next stream that a client opens."""
        async with asyncio.timeout(WAIT_S):
            return await self._streams.get()

    async def result(self) -> dict[str, Any]:
        """The next body that a client sends to tool-results."""
        async with asyncio.timeout(WAIT_S):
            return await self._results.get()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[ScriptedHost]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
            for writer in self._connections.values():
                writer.transport.abort()
            await asyncio.gather(*self._connections)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            while heard := await _request(reader):
                self.heard.append(heard)
                if heard.path.endswith("/tool-results"):
                    self._results.put_nowait(heard.body)
                route = heard.path.rsplit("/", 1)[-1]
                if route in self._held:
                    await self._held[route].wait()
                said = self._script[route].popleft() if self._script.get(route) else self._default(heard)
                if said.status == 0:
                    writer.transport.abort()
                elif route == "stream" and said == Said(200):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
                    self._streams.put_nowait(Stream(heard, reader, writer))
                    return
                else:
                    writer.write(_answer(said))
        except ConnectionError:
            pass

    def _default(self, heard: Heard) -> Said:
        match heard.path.rsplit("/", 1)[-1]:
            case "sessions":
                return Said(201, {"code": CODE, "pluginToken": TOKEN, "ttl": 3600})
            case "register-tools":
                self.revision += 1
                names = [tool["name"] for tool in heard.body["tools"]]
                return Said(201, {"registeredTools": names, "failedTools": [], "revision": self.revision})
            case "update-tools":
                self.revision += 1
                return Said(200, {"success": True, "revision": self.revision, "updates": {}})
            case "tool-results":
                return Said(200, {"success": True, "id": heard.body["id"], "status": "done"})
            case _:
                return Said(204 if heard.method == "DELETE" else 200)


def refused(status: int, code: str, message: str = "no", **headers: str) -> Said:
    """A refusal as a host words it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Said(status, {"error": {"type": "", "code": code, "message": message}}, named)


async def _request(reader: asyncio.StreamReader) -> Heard | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Heard(method, path, headers, json.loads(raw) if raw else None)


def _answer(said: Said) -> bytes:
    body = said.body if isinstance(said.body, bytes) else b"" if said.body is None else json.dumps(said.body).encode()
    head = [f"HTTP/1.1 {said.status} Said", *(f"{name}: {value}" for name, value in said.headers.items())]
    if said.status != 204:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body
