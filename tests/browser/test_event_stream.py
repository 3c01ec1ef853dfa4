"""`readEvents` of toolplug.js, inside a browser: the event-stream format, wherever its bytes are cut."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.judge,
    pytest.mark.needs("chromium"),
    pytest.mark.requirement("I3-5-browser-stream"),
]

READ = """
async ([module, pieces]) => {
    const { readEvents } = await import(module);
    const body = new ReadableStream({
        start(stream) {
            for (const piece of pieces) stream.enqueue(Uint8Array.from(piece));
            stream.close();
        },
    });
    const events = [];
    for await (const event of readEvents(body)) events.push(event);
    return events;
}
"""


@pytest.fixture
async def reading(page: Page, origin: str, host: str) -> Any:
    """Give the events that the module reads from these pieces of a stream."""
    await page.goto(f"{origin}/data_table.css")

    async def read(*pieces: bytes) -> list[dict[str, str]]:
        return await page.evaluate(READ, [f"{host}/toolplug.js", [list(piece) for piece in pieces]])

    return read


def event(data: str, name: str = "message", position: str = "") -> dict[str, str]:
    return {"event": name, "data": data, "id": position}


ALL = (
    '\ufeffid: 7\nevent: tool-request\ndata: {"of": "Öl – 🦦"}\n\n: a comment\n\ndata: one\ndata:two\ndata\n\n'
).encode()
READ_FROM_ALL = [event('{"of": "Öl – 🦦"}', "tool-request", "7"), event("one\ntwo\n", position="7")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
async def test_a_stream_reads_the_same_wherever_it_is_cut_in_two(reading: Any, end: bytes) -> None:
    stream = ALL.replace(b"\n", end)
    for at in range(len(stream) + 1):
        assert await reading(stream[:at], stream[at:]) == READ_FROM_ALL, at


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
async def test_a_stream_reads_the_same_byte_by_byte(reading: Any, end: bytes) -> None:
    stream = ALL.replace(b"\n", end)
    assert await reading(*[stream[at : at + 1] for at in range(len(stream))]) == READ_FROM_ALL


async def test_an_event_that_the_end_cuts_off_is_left_out(reading: Any) -> None:
    assert await reading(b"data: whole\n\ndata: half\n") == [event("whole")]


async def test_only_data_makes_an_event_but_an_id_stays(reading: Any) -> None:
    assert await reading(b"event: nothing\nid: 3\n\ndata:  two spaces\n\n") == [event(" two spaces", position="3")]


async def test_an_id_with_a_null_and_fields_that_nobody_knows_are_ignored(reading: Any) -> None:
    assert await reading(b"id: 1\nid: 2\0\nretry: 5\nother: x\ndata: y:z\n\n") == [event("y:z", position="1")]


async def test_a_large_event_in_many_chunks_is_read_in_one_pass(reading: Any) -> None:
    text = "x" * 200_000
    stream = f"data: {text}\n\n".encode()
    chunks = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    assert await reading(*chunks) == [event(text)]
