"""`POST /v1/responses` at `toolplug serve`, with a scripted Chat Completions server as its backend, said to be one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from time import monotonic_ns, perf_counter, process_time

from openai import AsyncOpenAI

from benchmarks.connection import Connection, request
from benchmarks.frame import MEGABYTES, MILLISECONDS, Batch, Row
from benchmarks.process import Served, started
from benchmarks.readers import Readers
from benchmarks.serve import KEY, hosted

REQUESTS = 25
CALLS = 20
STREAMS = 200
FRAGMENTS = 50
EVERY_MS = 100
THINKS_MS = 20
RESPONSES = 10_000
WARM = 1000
MODEL = "scripted"

_HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
_SENT = re.compile(rb"delta[^<]*<(\d+)>")
_DONE = b"[DONE]"
_COMPLETED = b"response.completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """A host and the backend behind it, each in a process of its own."""

    host: Served
    backend: Served


@contextmanager
def opened_fixture() -> Generator[Fixture]:
    """Serve both."""
    with started("benchmarks.server", "scripted_model") as backend:
        url = f"http://127.0.0.1:{backend.port}/v1"
        with hosted(responses={"backend": {"base_url": url, "model": MODEL}}) as host:
            yield Fixture(host=host, backend=backend)


@contextmanager
def peer() -> Generator[Fixture]:
    """The same backend behind another server of the Responses API."""
    with started("benchmarks.server", "scripted_model") as backend:
        os.environ["OPENAI_BASE_URL_INTERNAL"] = f"http://127.0.0.1:{backend.port}"
        with started("benchmarks.server", "open_responses") as host:
            yield Fixture(host=host, backend=backend)


def ours(text: str, *, stream: bool = False) -> bytes:
    """A request to the host."""
    body = {"model": MODEL, "input": text, "stream": stream}
    return request("POST", "/v1/responses", _HEADERS, json.dumps(body).encode())


def theirs(text: str) -> bytes:
    """The same as a streamed request to the backend itself."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": True}
    return request("POST", "/v1/chat/completions", _HEADERS, json.dumps(body).encode())


@asynccontextmanager
async def added_turn() -> AsyncGenerator[Batch]:
    """CPU of the host for one response, less that of the `openai` client for the one question behind it."""
    with opened_fixture() as fixture, Connection(fixture.host.port) as connection:
        url = f"http://127.0.0.1:{fixture.backend.port}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none") as client:

            async def batch(n: int) -> float:
                asked = n * REQUESTS
                cost = _cpu(fixture.host, connection, ours("text"), asked)
                before = process_time()
                for _ in range(asked):
                    await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "text"}])
                return (cost - (process_time() - before)) / REQUESTS

            yield batch


@asynccontextmanager
async def added_call() -> AsyncGenerator[Batch]:
    """CPU of the host for one more hosted call in a turn."""
    with opened_fixture() as fixture, Connection(fixture.host.port) as connection:

        async def batch(n: int) -> float:
            many = _cpu(fixture.host, connection, ours(f"call {CALLS + 1}"), n * REQUESTS)
            return (many - _cpu(fixture.host, connection, ours("call 1"), n * REQUESTS)) / CALLS / REQUESTS

        yield batch


def _cpu(host: Served, connection: Connection, message: bytes, n: int) -> float:
    before = host.cpu_s()
    for _ in range(n):
        answer: dict[str, object] = json.loads(connection.ask(message))
        assert answer["status"] == "completed", answer
    return host.cpu_s() - before


@asynccontextmanager
async def first_text(*, of_host: bool) -> AsyncGenerator[Batch]:
    """The time until the first fragment of a text has come, from the host or from the backend itself."""
    text = f"tick 1 {THINKS_MS}"
    with opened_fixture() as fixture:
        port, message = (
            (fixture.host.port, ours(text, stream=True)) if of_host else (fixture.backend.port, theirs(text))
        )

        async def batch(n: int) -> float:
            taken = 0.0
            for _ in range(n):
                with Readers(lambda number, event: None) as reader:
                    begun = perf_counter()
                    reader.open(port, message, ready=b'delta":"<' if of_host else b'"content": "<')
                    taken += perf_counter() - begun
            return taken

        yield batch


@asynccontextmanager
async def streamed(fixture: Callable[[], AbstractContextManager[Fixture]], path: str) -> AsyncGenerator[Batch]:
    """CPU of a server for one streamed response of a short text, on a connection of its own."""
    body = json.dumps({"model": MODEL, "input": [{"role": "user", "content": "tick 1 1"}], "stream": True})
    message = request("POST", path, _HEADERS, body.encode())
    with fixture() as served:

        async def batch(n: int) -> float:
            before = served.host.cpu_s()
            for _ in range(n * REQUESTS):
                with Readers(lambda number, event: None) as reader:
                    reader.open(served.host.port, message, ready=_COMPLETED)
            return (served.host.cpu_s() - before) / REQUESTS

        yield batch


@asynccontextmanager
async def added_latency(*, from_first: bool) -> AsyncGenerator[Batch]:
    """p99 of a fragment's time from the backend to a reader of the host, less what it takes without the host.

    Of the fragments that were sent once all streams were open; `from_first`: of all, also of those that were sent while
    two hundred requests came as fast as one reader can write them.
    """
    text = f"tick {FRAGMENTS} {EVERY_MS}"
    with opened_fixture() as fixture:

        async def batch(n: int) -> float:
            cost = 0.0
            for _ in range(n):
                straight = _latencies(fixture.backend.port, theirs(text), from_first=from_first)
                through = _latencies(fixture.host.port, ours(text, stream=True), from_first=from_first)
                cost += quantiles(through, n=100)[98] - median(straight)
            return cost

        yield batch


def _latencies(port: int, message: bytes, *, from_first: bool) -> Sequence[float]:
    """Seconds that each fragment of many streams at once took to come; every stream ends whole."""
    taken: list[tuple[int, float]] = []
    ended: set[int] = set()

    def see(number: int, event: bytes) -> None:
        found = _SENT.search(event)
        if found is not None and b".done" not in event:
            sent = int(found[1])
            taken.append((sent, (monotonic_ns() - sent) / 1e9))
        if _DONE in event:
            ended.add(number)

    with Readers(see) as readers:
        for _ in range(STREAMS):
            readers.open(port, message, ready=b"\r\n\r\n")
        all_open = monotonic_ns()
        readers.drain_until(lambda: len(ended) == STREAMS)
    assert len(taken) >= STREAMS * (FRAGMENTS - 1), len(taken)
    return [took for sent, took in taken if from_first or sent >= all_open]


@asynccontextmanager
async def grown() -> AsyncGenerator[Batch]:
    """How much the host's resident memory grows over many stored responses; the first thousand are not counted."""

    async def batch(n: int) -> float:
        bytes_grown = 0
        for _ in range(n):
            with opened_fixture() as fixture, Connection(fixture.host.port) as connection:
                _cpu(fixture.host, connection, ours("call 1"), WARM)
                before = fixture.host.resident()
                _cpu(fixture.host, connection, ours("call 1"), RESPONSES)
                bytes_grown += fixture.host.resident() - before
        return bytes_grown

    yield batch


ROWS = (
    Row(
        name="POST /v1/responses without tool calls: CPU added to a raw call",
        ours=added_turn,
        hold=2.0,
        aim=1.0,
        unit=MILLISECONDS,
        pairs=15,
        batch_s=0,
    ),
    Row(
        name="each hosted call of a turn: CPU",
        ours=added_call,
        hold=1.0,
        aim=0.3,
        unit=MILLISECONDS,
        pairs=15,
        batch_s=0,
    ),
    Row(
        name=f"first streamed byte of an answer's text, after {THINKS_MS} ms of thinking",
        ours=partial(first_text, of_host=True),
        other=partial(first_text, of_host=False),
        against="the backend's own",
        hold=1.3,
        aim=1.15,
        unit=MILLISECONDS,
        pairs=101,
        batch_s=0,
    ),
    Row(
        name="a streamed response, kept in the store, server CPU",
        ours=partial(streamed, opened_fixture, "/v1/responses"),
        other=partial(streamed, peer, "/responses"),
        against="open-responses-server, which keeps none",
        unit=MILLISECONDS,
        pairs=15,
        batch_s=0,
    ),
    Row(
        name="200 streams at once: p99 of the latency added to an event",
        ours=partial(added_latency, from_first=False),
        hold=100.0,
        aim=30.0,
        unit=MILLISECONDS,
        pairs=3,
        batch_s=0,
    ),
    Row(
        name="the same, with the burst of 200 requests that opens them",
        ours=partial(added_latency, from_first=True),
        unit=MILLISECONDS,
        pairs=3,
        batch_s=0,
    ),
    Row(
        name="memory after 10,000 responses",
        ours=grown,
        hold=16.0,
        aim=4.0,
        unit=MEGABYTES,
        pairs=1,
        batch_s=0,
    ),
)
