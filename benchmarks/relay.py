"""A call that a session's plugin answers: from the client's request to its answer, the plugin's steps included."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter

from benchmarks.connection import Connection, request
from benchmarks.frame import Batch, Row
from benchmarks.plugin import CLIENT, JSON, Plugin, definitions
from benchmarks.process import Served, started
from benchmarks.readers import Readers
from benchmarks.serve import hosted
from benchmarks.tools import SEARCH

REQUEST = b"event: tool-request\n"
CALL = json.dumps({"id": "c1", "tool": "search_0", "arguments": SEARCH}).encode()
RESULT = {"rows": 3}


class Requests:
    """The plugin's stream: the newest request that came on it."""

    def __init__(self) -> None:
        self.readers: Readers = Readers(self._see)
        self._newest: bytes | None = None

    def take(self) -> str:
        """The id of the next request, when it comes."""
        self.readers.drain_until(lambda: self._newest is not None)
        assert self._newest is not None
        data, self._newest = self._newest, None
        asked: dict[str, str] = json.loads(data.partition(b"data: ")[2])
        return asked["id"]

    def _see(self, number: int, event: bytes) -> None:
        if REQUEST in event:
            self._newest = event


@contextmanager
def relaying(asked: Served, holding: Served) -> Generator[Callable[[int], float]]:
    """Let a client post calls to one host; the plugin reads each on its stream of the other, and answers there.

    Gives a function that makes so many calls, one after the other, and returns their seconds.
    """
    with Connection(asked.port) as client, Connection(holding.port) as answering:
        plugin, requests = Plugin.lending(client, definitions(20)), Requests()
        call = request("POST", f"/api/sessions/{plugin.code}/tool-calls", {**CLIENT, **JSON}, CALL)
        with requests.readers:
            requests.readers.open(holding.port, plugin.stream())

            def made(n: int) -> float:
                begun = perf_counter()
                for _ in range(n):
                    client.send(call)
                    answering.ask(plugin.answer(requests.take(), RESULT))
                    client.answer()
                return perf_counter() - begun

            made(1)  # a connection that asks for nothing is soon closed
            yield made


@asynccontextmanager
async def relayed() -> AsyncGenerator[Batch]:
    """Relay the calls in one process."""
    with hosted() as served, relaying(served, served) as made:

        async def batch(n: int) -> float:
            return made(n)

        yield batch


@asynccontextmanager
async def asked_twice() -> AsyncGenerator[Batch]:
    """Two requests with the same bodies, one after the other, to a route that does nothing with them."""
    with started("benchmarks.server", "starlette_bare") as served, Connection(served.port) as client:
        call = request("POST", "/v1/take", JSON, CALL)
        answer = request("POST", "/v1/take", JSON, json.dumps({"id": "r1", "result": RESULT}).encode())

        async def batch(n: int) -> float:
            begun = perf_counter()
            for _ in range(n):
                client.ask(call)
                client.ask(answer)
            return perf_counter() - begun

        yield batch


ROWS = (
    Row(
        name="relayed call: request in, stream out, answer in",
        ours=relayed,
        other=asked_twice,
        against="two bare HTTP round trips",
        hold=2.5,
        aim=1.5,
        pairs=101,
        batch_s=0.02,
    ),
)
