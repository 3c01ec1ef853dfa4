"""Requests to the ASGI application by hand, so that no client library adds or hides a byte, and their record."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message
from tests.golden.transcript import Exchange, Transcript

LONG = 1000
"""Of the body of a request that is longer, only the length is recorded."""
NOTHING: Mapping[str, str] = MappingProxyType({})
HIDDEN_FIELDS = {
    "code": "code",
    "sessionCode": "code",
    "pluginToken": "plugin token",
}
"""Members of answers that are random, and what stands for them."""


class Talk:
    """One request and what the application says to it, as it comes."""

    def __init__(self, exchange: Exchange, scope: dict[str, Any], content: bytes) -> None:
        self.exchange = exchange
        self.scope = scope
        self.hung_up = asyncio.Event()
        self._content: bytes | None = content
        self._grown = asyncio.Event()

    @property
    def status(self) -> int:
        return self.exchange.status

    @property
    def text(self) -> str:
        return self.exchange.body.decode()

    def header(self, name: str) -> str:
        return dict(self.exchange.headers)[name.encode()].decode()

    def json(self) -> Any:
        return json.loads(self.exchange.body)

    def events(self, name: str) -> list[Any]:
        """The data of each event of this name."""
        blocks = [block.split("\n") for block in self.text.replace("\r\n", "\n").split("\n\n")]
        return [
            json.loads(line.removeprefix("data: "))
            for block in blocks
            if f"event: {name}" in block
            for line in block
            if line.startswith("data: ")
        ]

    async def until(self, name: str, count: int = 1) -> Any:
        """The data of the event of this name that makes them so many."""
        while len(self.events(name)) < count:
            self._grown.clear()
            await self._grown.wait()
        return self.events(name)[count - 1]

    async def receive(self) -> Message:
        if self._content is not None:
            content, self._content = self._content, None
            return {"type": "http.request", "body": content, "more_body": False}
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.exchange.status = message["status"]
            self.exchange.headers = list(message["headers"])
        else:
            self.exchange.body += message.get("body", b"")
        self._grown.set()


class Wire:
    """An application, and the transcript of everything that is asked here. `file` is its configuration."""

    def __init__(self, app: ASGIApp, transcript: Transcript, file: Path) -> None:
        self.app = app
        self.transcript = transcript
        self.file = file

    def title(self, text: str) -> None:
        """Begin a part of the transcript."""
        self.transcript.add(f"{'=' * 20} {text}\n")

    async def ask(
        self,
        method: str,
        target: str,
        by: str | None = None,
        *,
        body: object = None,
        headers: Mapping[str, str] = NOTHING,
        peer: str = "127.0.0.1",
        records: bool = True,
    ) -> Talk:
        """Send one request and record its whole answer.

        `by` is an API key or a token; a `body` of bytes is sent as it is, any other as JSON. `records` False: the
        answer's body is left out.
        """
        talk = self._talk(method, target, by, body, headers, peer)
        talk.exchange.keeps_body = records
        await self.app(talk.scope, talk.receive, talk.send)
        self._learn(talk.exchange.body)
        return talk

    async def get(self, target: str, by: str | None = None, **more: Any) -> Talk:
        return await self.ask("GET", target, by, **more)

    async def post(self, target: str, by: str | None = None, body: object = None, **more: Any) -> Talk:
        return await self.ask("POST", target, by, body=body, **more)

    @asynccontextmanager
    async def stream(
        self, target: str, by: str | None = None, *, method: str = "GET", body: object = None, **headers: str
    ) -> AsyncIterator[Talk]:
        """A request whose answer is read as it comes; leaving hangs up and waits until the application has ended."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        talk = self._talk(method, target, by, body, named, "127.0.0.1")
        running = asyncio.create_task(self._run(talk))
        try:
            yield talk
        finally:
            talk.hung_up.set()
            await running
            self._learn(talk.exchange.body)

    async def _run(self, talk: Talk) -> None:
        await self.app(talk.scope, talk.receive, talk.send)

    def _talk(
        self, method: str, target: str, by: str | None, body: object, headers: Mapping[str, str], peer: str
    ) -> Talk:
        content = body if isinstance(body, bytes) else b"" if body is None else _json(body)
        shown = dict(headers) if by is None else {"authorization": f"Bearer {by}", **headers}
        given = "".join(f"{name}: {value}\n" for name, value in shown.items())
        kept = content if len(content) < LONG else b"(%d bytes)" % len(content)
        exchange = Exchange(f"{method} {target}", given, kept)
        self.transcript.add(exchange)
        return Talk(exchange, _scope(method, target, shown, content, peer), content)

    def _learn(self, body: bytes) -> None:
        for response in re.findall(rb'"resp_([0-9a-f]{32})"', body):
            self.transcript.number(response.decode(), "response")
        try:
            answer = json.loads(body)
        except ValueError:
            return
        if isinstance(answer, dict):
            for member, name in HIDDEN_FIELDS.items():
                if isinstance(answer.get(member), str):
                    self.transcript.number(answer[member], name)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _scope(method: str, target: str, headers: Mapping[str, str], content: bytes, peer: str) -> dict[str, Any]:
    usual = {"host": "localhost", "x-request-id": "request-1"}
    if content:
        usual |= {"content-type": "application/json", "content-length": str(len(content))}
    sent = usual | {name.lower(): value for name, value in headers.items()}
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items() if value != ABSENT],
        "client": (peer, 4711),
        "server": ("127.0.0.1", 8080),
    }


ABSENT = "(not sent)"
"""The value of a usual header that this request is to go without."""
