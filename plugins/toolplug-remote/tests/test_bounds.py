"""Whatever another host sends, the event loop goes on: no step of reading it takes long, however much there is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.cpu_cost import UNBOUNDED, longest_callback

from toolplug import ToolStatus
from toolplug_remote.catalog_reader import MAX_TOOL_CHARS, MAX_TOOLS, BadCatalog, read_catalog

from .conftest import PATIENCE_S, Link
from .test_hostile import CONNECTED, EVENTS, LIST, TOOL, host, result

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("H-remote-bounds")]

TOOLS = [{**TOOL, "name": f"t{number}", "description": "x" * 700} for number in range(9_000)]
WHOLE = {"revision": 1, "tools": TOOLS, "names": [tool["name"] for tool in TOOLS], "via": {"t1": ["a", "b"]}}


async def test_a_catalog_is_read_as_json_reads_it() -> None:
    odd = {
        "a": [],
        "b": {},
        "c": [None, 1.5, True, "\\", "\u00e9\U0001f600"],
        "d": {"": [[[]]]},
        "e": "text",
        "f": 2**70,
    }
    for value in (WHOLE, odd, {}):
        for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
            assert await read_catalog(text) == value


HOSTILE: dict[str, Callable[[], str]] = {
    "many ways": lambda: json.dumps({"via": {f"t{number}": ["a"] for number in range(4 * MAX_TOOLS)}}),
    "many tools": lambda: '{"tools":[' + "{}," * 5_000_000 + "{}]}",
    "a large tool": lambda: '{"tools":[{"a":[' + "1," * 7_000_000 + "1]}]}",
    "a deep tool": lambda: '{"tools":[' + "[" * 8_000_000,
    "a long text": lambda: '{"host":"' + "a" * 15_000_000 + '"}',
    "a long number": lambda: '{"revision":' + "1" * 15_000_000 + "}",
    "many spaces": lambda: "{" + " " * 15_000_000 + "}",
    "many fields": lambda: "{" + ",".join(f'"k{number}":1' for number in range(500_000)) + "}",
    "a number that is none": lambda: '{"revision":NaN}',
    "no end": lambda: '{"tools":[{"name":"a"}',
    "more after the end": lambda: "{}{}",
    "no object": lambda: "[1]",
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_catalog_that_is_none_is_refused_without_holding_the_loop(kind: str) -> None:
    text = HOSTILE[kind]()

    async def read() -> str:
        with pytest.raises(BadCatalog) as refused:
            await read_catalog(text)
        return str(refused.value)

    with longest_callback() as longest:
        said = await asyncio.create_task(read())
    assert said
    assert len(said) < 300
    assert longest.units < UNBOUNDED


WIDE = {
    "objects": "[" + '{"a":1},' * (MAX_TOOL_CHARS // 9) + "1]",
    "lists": "[" + "[]," * (MAX_TOOL_CHARS // 4) + "1]",
}


@pytest.mark.parametrize("tool", WIDE.values(), ids=WIDE)
async def test_a_tool_of_too_many_parts_is_refused(tool: str) -> None:
    async def read() -> None:
        with pytest.raises(BadCatalog, match="has over 10,000 objects and lists"):
            await read_catalog(f'{{"tools":[{",".join([tool] * 60)}]}}')

    with longest_callback() as longest:
        await asyncio.create_task(read())
    assert longest.units < UNBOUNDED


async def test_tools_that_are_dear_to_read_give_way() -> None:
    tool = "{" + ",".join(f'"{number}":1' for number in range(MAX_TOOL_CHARS // 10)) + "}"
    text = f'{{"tools":[{",".join([tool] * 60)}]}}'

    async def read() -> int:
        found = (await read_catalog(text))["tools"]
        return len(found) if isinstance(found, list) else 0

    with longest_callback() as longest:
        assert await asyncio.create_task(read()) == 60
    assert longest.units < UNBOUNDED


def event(name: str, value: object) -> bytes:
    """An event of the stream."""
    return f"event: {name}\ndata: {json.dumps(value)}\n\n".encode()


@asynccontextmanager
async def flooding_host(changes: int, sent: list[int]) -> AsyncGenerator[str]:
    """A host that sends so many changed catalogs of 9,000 tools as fast as they are read, and counts them."""
    begin = EVENTS.encode() + event("connected", {**CONNECTED, "tools": TOOLS})
    texts = [
        event("tools-changed", {**WHOLE, "tools": TOOLS[:number], "revision": number}) for number in (8_999, 9_000)
    ]
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            for number in range(changes):
                await writer.drain()
                writer.write(texts[number % 2])
                sent[0] += 1
            await ended.wait()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        ended.set()
        server.close()


@pytest.mark.judge
async def test_a_flood_of_changes_is_taken_once_a_second(link: Link) -> None:
    sent = [0]
    async with flooding_host(50, sent) as url, link(url) as here:
        await here.until(lambda: len(here.tools.catalog) == len(TOOLS))
        with longest_callback() as longest:
            taken = sent[0]
            for _ in range(4):
                await asyncio.sleep(1)
        assert sent[0] - taken <= 6
    assert longest.units < UNBOUNDED


@pytest.mark.process
@pytest.mark.parametrize(
    "value",
    [[{"a": 1}] * 500_000, [1] * 1_500_000, {str(number): 1 for number in range(200_000)}, ["a"] * 500_000],
    ids=["objects", "numbers", "names", "texts"],
)
async def test_a_wide_result_is_refused_without_holding_the_loop(link: Link, value: object) -> None:
    text = json.dumps({"output": "x", "status": "success", "structured": value}, separators=(",", ":"))
    assert len(text) < 4 * 1024 * 1024
    async with host(LIST, result(text)) as url, link(url) as here:
        with longest_callback() as longest:
            ended = await here.call("who", deadline=asyncio.get_running_loop().time() + PATIENCE_S)
    assert ended.status is ToolStatus.TOOL_ERROR
    assert "the result has more than 65,536 values" in ended.output
    assert longest.units < UNBOUNDED


@pytest.mark.process
async def test_a_long_text_of_a_result_arrives(link: Link) -> None:
    text = json.dumps({"output": 'a,"b":[1],\\"' * 70_000, "status": "success"})
    async with host(LIST, result(text)) as url, link(url) as here:
        ended = await here.call("who")
    assert ended.status is ToolStatus.SUCCESS
