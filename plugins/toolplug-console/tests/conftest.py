"""A host with a console, and visitors that follow its streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest
from starlette.types import ASGIApp

from toolplug import FunctionProvider, Principal, ToolCall, ToolError, WouldRefuse, tool

Serve = Callable[..., AbstractAsyncContextManager[Any]]

PATIENCE_S = 60


class Sample(FunctionProvider):
    """Tools that end in several ways."""

    @tool
    async def echo(self, text: str) -> str:
        """Return the text."""
        return text

    @tool
    async def fail(self) -> str:
        """Fail."""
        raise ToolError("out of stock")

    @tool
    async def crash(self) -> str:
        """Crash."""
        raise ValueError("a secret text")

    @tool(sensitive=True)
    async def sign_in(self, password: str) -> str:
        """Take a password."""
        return f"welcome, {password}"


class Careful(FunctionProvider):
    """Watches what a rule of it would refuse."""

    def before_call(self, call: ToolCall) -> WouldRefuse | None:
        return WouldRefuse("it signs in") if call.name == "sign_in" else None


class Stream:
    """An open event stream; `next` returns the data of the next event of a name."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.status = 0

    async def send(self, message: Any) -> None:
        """Take one ASGI message of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.begun.set()
        elif message.get("body"):
            for block in message["body"].split(b"\n\n"):
                self._chunks.put_nowait(block)

    async def next(self, name: str) -> Any:
        """Return the data of the next event of this name."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                lines = (await self._chunks.get()).decode().split("\n")
                if lines[0] == f"event: {name}":
                    return json.loads(lines[1].removeprefix("data: "))


@asynccontextmanager
async def open_stream(app: ASGIApp, path: str, key: str = "") -> AsyncGenerator[Stream]:
    """Open a stream without a socket; leaving hangs up."""
    stream, left = Stream(), asyncio.Event()
    asked = False

    async def receive() -> Any:
        nonlocal asked
        if asked:
            await left.wait()
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", b"127.0.0.1"), *([(b"authorization", f"Bearer {key}".encode())] if key else [])]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    task = asyncio.create_task(app(scope, receive, stream.send))  # type: ignore[arg-type]
    task.add_done_callback(lambda _: stream.ended.set())
    try:
        yield stream
    finally:
        left.set()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def serve(in_process_host: Any) -> Serve:
    """Opens a host with a console of these settings, and these principals."""

    def open_it(*principals: Principal, host: dict[str, Any] | None = None, **settings: object) -> Any:
        console = {"enabled": True, "public_routes": True, **settings}
        sample = {"type": f"{__file__}:Sample", "enabled": True}
        config = {"providers": {"console": console, "sample": sample}, "store": "memory://", **(host or {})}
        return in_process_host(config, principals=principals)

    return open_it


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
