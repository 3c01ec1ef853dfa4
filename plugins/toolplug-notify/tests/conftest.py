"""A receiver over real HTTP, and a host whose calls wait."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from toolplug import Host, open_host

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Received(NamedTuple):
    """One request: its path, headers and body, and its time (`time.monotonic`)."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.body)
        return fields


class Receiver:
    """Notes what comes, and answers with the next of `answers`, then with 204."""

    def __init__(self) -> None:
        self.got: list[Received] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *given: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/channel?key=k"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    async def messages(self, count: int) -> list[dict[str, Any]]:
        """The first so many messages, as soon as they have come."""
        async with asyncio.timeout(20):
            while len(self.got) < count:  # noqa: ASYNC110  the server has a thread of its own
                await asyncio.sleep(0.02)
        return [each.fields for each in self.got[:count]]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


Serve = Callable[..., AbstractAsyncContextManager[Host]]


@pytest.fixture
def serve(receiver: Receiver) -> Serve:
    """Opens a host whose `hello` waits, with these settings of the plugin."""

    @asynccontextmanager
    async def opened(**settings: object) -> AsyncIterator[Host]:
        entry = {"enabled": True, "url": receiver.url, "secret": SECRET, **settings}
        providers = {"hello": {"enabled": True, "tools": {"hello": "ask"}}, "notify": entry}
        async with open_host({"store": "memory://", "providers": providers}, environ={}) as host:
            yield host

    return opened


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
