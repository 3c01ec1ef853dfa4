"""A model's server that sends answers made to hold the loop: each is read in short steps, or refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

import pytest
from tests.cpu_cost import UNBOUNDED, longest_callback
from tests.figures import FIGURE
from tests.responses.library.raw_model import DONE, Notes, chunk, event, fragment, streamed, whole

from toolplug import FunctionRegistry
from toolplug.errors import BackendFailed
from toolplug.parts.responses.openai_backend import OpenAIBackend
from toolplug.responses import Loop, ResponseRequest, ToolCaller

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.timeout(600)]

MIB = 1024 * 1024
WORST = 10


def named(count: int) -> dict[str, int]:
    return {f"key-{number}": number for number in range(count)}


def detailed(details: Iterable[Mapping[str, object]]) -> bytes:
    """A stream with one detail of its reasoning in each chunk."""
    return b"".join(chunk({"content": "x", "reasoning_details": [each]}) for each in details) + DONE


def call(arguments: object, number: int = 0) -> dict[str, object]:
    return fragment(number, f"c{number}", "note", arguments)


def with_calls(*calls: object) -> bytes:
    return whole({"content": None, "tool_calls": list(calls)}, "tool_calls")


def asked(arguments: object) -> dict[str, object]:
    return {"id": "c", "type": "function", "function": {"name": "note", "arguments": arguments}}


ANSWERS: dict[str, Callable[[], bytes]] = {
    "chunks of one letter": lambda: chunk({"content": "x"}) * 50_000 + DONE,
    "empty chunks": lambda: chunk({}) * 130_000 + DONE,
    "events of nothing": lambda: b"data:\n\n" * 1_000_000,
    "comments": lambda: b": x\n\n" * 1_000_000,
    "empty lines": lambda: b"\n" * (16 * MIB),
    "one line": lambda: b"data: " + b"x" * (15 * MIB),
    "one event of many lines": lambda: b"data: 1,\n" * 1_500_000 + b"\n",
    "events that are no JSON": lambda: event("{") * 100_000,
    "a chunk of many values": lambda: chunk({"content": "x", "more": [1] * 120_000}) + DONE,
    "a chunk of more values than are read": lambda: chunk({"more": [1] * 1_900_000}) + DONE,
    "a chunk of many names": lambda: chunk({"content": "x", "more": named(60_000)}) + DONE,
    "a chunk of empty lists": lambda: chunk({"more": [[]] * 120_000}) + DONE,
    "a deep chunk": lambda: event('{"choices":' + "[" * MIB),
    "a chunk of long numbers": lambda: event(f'{{"choices": [{",".join(["9" * 4300] * 900)}]}}') + DONE,
    "many chunks of many values": lambda: chunk({"more": [1] * 100_000}) * 40 + DONE,
    "many choices": lambda: event({"choices": [{"index": 0, "delta": {"content": "x"}}] * 40_000}) + DONE,
    "many calls at once": lambda: streamed([call("{}", number) for number in range(20_000)]),
    "fragments of calls at once": lambda: streamed([call("x")] * 30_000),
    "fragments of one letter": lambda: streamed(call('{"text": "'), *[fragment(0, arguments="x")] * 50_000),
    "fragments without an index": lambda: streamed(*[fragment(..., None, None, "x")] * 50_000),
    "128 calls in turns": lambda: streamed(*[[call("", number) for number in range(128)]] * 200),
    "parts of content": lambda: whole({"content": [{"type": "text", "text": "x"}] * 40_000}),
    "parts of odd types": lambda: whole({"content": [1] * 120_000}),
    "a long text": lambda: whole({"content": "x" * (3 * MIB)}),
    "a long text of escapes": lambda: whole({"content": "\n" * (1 * MIB)}),
    "long arguments": lambda: with_calls(asked(json.dumps({"text": "x" * 520_000}))),
    "arguments of many names": lambda: with_calls(asked(json.dumps(named(24_000)))),
    "arguments of many objects": lambda: with_calls(asked(json.dumps({"text": [{}] * 120_000}))),
    "arguments of many numbers": lambda: with_calls(asked(json.dumps({"text": [1] * 120_000}))),
    "arguments as an object": lambda: with_calls(asked(named(60_000))),
    "128 calls of many names": lambda: with_calls(*[asked(json.dumps(named(600)))] * 128),
    "many calls": lambda: with_calls(*[asked("{}")] * 20_000),
    "many fields that go back": lambda: whole({"content": "x", **{f"f{n}": {"a": 1} for n in range(30_000)}}),
    "a large field that goes back": lambda: whole({"content": "x", "reasoning_details": [{"a": "b"}] * 60_000}),
    "fields that go back in chunks": lambda: detailed({"index": number, "text": "y"} for number in range(20_000)),
    "fields that go back under one index": lambda: detailed(
        {"index": 0, "type": str(number)} for number in range(4_000)
    ),
    "usage of odd numbers": lambda: whole({"content": "x"}, usage={"total_tokens": 10**4000, "details": named(60_000)}),
    "a whole answer of many names": lambda: json.dumps(named(130_000)).encode(),
    "a whole answer of long numbers": lambda: b"[" + b",".join([b"9" * 4300] * 900) + b"]",
}


@asynccontextmanager
async def server_of(sent: bytes) -> AsyncGenerator[str]:
    """A server that answers every request with these bytes: a stream of events, or JSON."""
    kind = b"application/json" if sent[:1] in (b"{", b"[") else b"text/event-stream"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n\r\n" % kind)
            for start in range(0, len(sent), 64 * 1024):
                writer.write(sent[start : start + 64 * 1024])
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def cost(registry: FunctionRegistry, sent: bytes) -> tuple[float, str]:
    """The longest callback, in units of CPU, while a response of one turn is made of the answer; and its state."""
    async with server_of(sent) as url:
        model = OpenAIBackend(url, None, "m", timeout_s=60, deadline_s=60, retries=0)
        stream = sent[:1] not in (b"{", b"[")
        try:
            loop = Loop(model, ToolCaller(registry), ResponseRequest(input="Hi", stream=stream), max_turns=1)
            with longest_callback() as longest, suppress(BackendFailed):  # an answer that is no stream raises
                async for _ in loop.events():
                    pass
        finally:
            await model.aclose()
    return longest.units, loop.draft.status


@pytest.mark.requirement("C-9-backend-bounded")
async def test_no_answer_of_a_model_holds_the_loop(record_property: Callable[[str, object], None]) -> None:
    found: list[tuple[float, str, str]] = []
    async with FunctionRegistry({"notes": Notes()}) as registry:
        for name, made in ANSWERS.items():
            units, status = await cost(registry, made())
            assert status in {"completed", "failed", "incomplete", "in_progress"}, name
            found.append((units, name, status))
    slowest = sorted(found, reverse=True)[:WORST]
    for units, name, status in slowest:
        record_property(FIGURE, f"answers of a model: {units:.1f} units of CPU in one callback, {status}: {name}")
    assert slowest[0][0] <= UNBOUNDED, slowest[0]
