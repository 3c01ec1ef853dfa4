"""A host with the provider, entered, and clients of two tenants that reach it over HTTP; a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

from toolplug import CallContext, Host, Principal, ToolCall, ToolResult, open_host
from toolplug.http import create_app

BASE = "http://127.0.0.1"
SMALL: dict[str, object] = {"memory": "128MiB", "processes": 24, "disk": "16MiB", "output": "64KiB", "time": 10}
"""Limits that are reached soon."""


@dataclass(frozen=True)
class Tenant:
    """One tenant's way in: its HTTP client, and its tool as a host calls it."""

    name: str
    http: httpx2.AsyncClient
    host: Host

    async def call(self, code: str, container: str | None = None, **context: Any) -> ToolResult:
        me = Principal(subject=self.name, tenant=self.name, scopes=frozenset({"tools:call"}))
        options = {} if container is None else {"container": container}
        made = ToolCall("c1", "code_interpreter", {"code": code})
        return await self.host.executor_for(me).execute(made, CallContext(principal=me, options=options, **context))

    async def run(self, code: str, container: str | None = None) -> str:
        """What the model sees of code that ends without an exception."""
        result = await self.call(code, container)
        assert not result.is_error, result.output
        return result.output

    async def container(self, name: str = "box", **body: object) -> str:
        answer = await self.http.post("/v1/containers", json={"name": name, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()["id"]

    async def upload(self, container: str, name: str, content: bytes) -> dict[str, Any]:
        answer = await self.http.post(f"/v1/containers/{container}/files", files={"file": (name, content)})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def files(self, container: str) -> dict[str, dict[str, Any]]:
        answer = await self.http.get(f"/v1/containers/{container}/files", params={"limit": 100})
        return {file["path"].removeprefix("/mnt/data/"): file for file in answer.json()["data"]}

    async def content(self, container: str, file: str) -> bytes:
        answer = await self.http.get(f"/v1/containers/{container}/files/{file}/content")
        assert answer.status_code == 200, answer.text
        return answer.content


@dataclass(frozen=True)
class Served:
    """An entered host and its two tenants."""

    host: Host
    one: Tenant
    two: Tenant

    def metric(self, name: str, **labels: str) -> float | None:
        return self.host.metrics.get_sample_value(name, labels)


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Opens a host with these settings of the provider."""

    @asynccontextmanager
    async def served(**settings: object) -> AsyncGenerator[Served]:
        keys = [{"key": f"key-{name}", "subject": name, "tenant": name} for name in ("one", "two")]
        config = {"providers": {"code_interpreter": {"enabled": True, **settings}}, "auth": {"api_keys": keys}}
        path = tmp_path / "providers.yaml"
        path.write_text(json.dumps(config))
        async with open_host(path) as host:
            transport = httpx2.ASGITransport(create_app(host))
            clients = [
                httpx2.AsyncClient(transport=transport, base_url=BASE, headers={"Authorization": f"Bearer key-{name}"})
                for name in ("one", "two")
            ]
            async with clients[0], clients[1]:
                yield Served(host, Tenant("one", clients[0], host), Tenant("two", clients[1], host))

    return served


@pytest.fixture
async def small(serve: Serve) -> AsyncGenerator[Served]:
    """A host whose containers have small limits."""
    async with serve(**SMALL) as served:
        yield served


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Model:
    """A server of Chat Completions: what it says next, and what it was asked."""

    url: str = ""
    turns: list[str | Sequence[str]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def plays(self, *turns: str | Sequence[str]) -> None:
        """A text is said; a sequence of texts is code for calls made together."""
        self.turns[:] = turns


@pytest.fixture
def model() -> Generator[Model]:
    """Serves it over HTTP."""
    scripted = Model()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            scripted.asked.append(asked)
            message, finish = _message(scripted.turns.pop(0))
            answer = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
            if asked.get("stream"):
                answer["object"] = "chat.completion.chunk"
                parts = [{"delta": message, "finish_reason": None}, {"delta": {}, "finish_reason": finish}]
                lines = [json.dumps({**answer, "choices": [{"index": 0, **part}]}) for part in parts]
                self._send("text/event-stream", "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")))
            else:
                choice = {"index": 0, "message": message, "finish_reason": finish}
                self._send("application/json", json.dumps({**answer, "choices": [choice]}))

        def _send(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        scripted.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield scripted
        finally:
            server.shutdown()
            thread.join()


def _message(turn: str | Sequence[str]) -> tuple[dict[str, object], str]:
    if isinstance(turn, str):
        return {"role": "assistant", "content": turn}, "stop"
    calls = [
        {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": "code_interpreter", "arguments": json.dumps({"code": code})},
        }
        for index, code in enumerate(turn)
    ]
    return {"role": "assistant", "tool_calls": calls}, "tool_calls"
