"""Lists that are long, come often, or want too much room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.discovery.fixtures import CLOCK, Server, names, raw, service

from toolplug.parts.mcp.discovery.listing import MAX_BODY_BYTES, MAX_TOOLS, ListReader
from toolplug.parts.mcp.discovery.record import NOTHING
from toolplug.parts.mcp.discovery.service import Discovery
from toolplug.runtime.tasks import in_slices
from toolplug.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Real time: slices are measured by it."""
    return "asyncio"


@pytest.fixture
async def discovery() -> AsyncIterator[Discovery]:
    async with MemoryStore() as store, service(store) as discovery:
        yield discovery


class Neighbour:
    """Somebody else on the loop, who counts his turns."""

    def __init__(self) -> None:
        self.turns = 0

    async def __aenter__(self) -> Neighbour:
        self.task = asyncio.create_task(self._count())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()

    async def _count(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


async def test_everybody_has_a_turn_after_each_slice() -> None:
    seen: list[int] = []

    def items(neighbour: Neighbour) -> Iterator[int]:
        for item in range(5):
            seen.append(neighbour.turns)
            yield item

    async with Neighbour() as neighbour:
        assert [item async for item in in_slices(items(neighbour), slice_s=-1)] == [0, 1, 2, 3, 4]
    assert seen == sorted(set(seen)), "a turn between any two"


@pytest.mark.judge
@pytest.mark.requirement("C-8-sanitised", "C-8-bounded")
async def test_ten_thousand_tools_are_read_in_slices_and_one_more_is_left_out(discovery: Discovery) -> None:
    tools = [raw(f"t{n}", properties={"a": {"type": "string"}}) for n in range(MAX_TOOLS + 3)]
    server = Server(CLOCK, *tools, takes_s=0)
    discovery.know(server.known())
    async with Neighbour() as neighbour:
        record = await discovery.wait_for_listing(CLOCK, None)
    assert (record.status, len(record.tools)) == ("success", MAX_TOOLS)
    assert record.left_out == ("/10000: only 10000 of 10003 tools are kept",)
    assert neighbour.turns > 20
    again = await discovery.wait_for_listing(CLOCK, None)
    assert all(one is other for one, other in zip(record.tools, again.tools, strict=True))


async def test_what_is_left_out_is_told_in_a_bounded_report() -> None:
    listing = await ListReader("clock").read([raw("a"), *([raw("a")] * 500), "no tool", raw("b")], NOTHING)
    assert [tool.name for tool in listing.tools] == ["a", "b"]
    assert len(listing.left_out) == 101
    assert listing.left_out[0] == "/1/a: another tool of this name comes before"
    assert listing.left_out[-1] == "and 401 more"


async def test_tools_that_together_want_too_much_room_are_left_out() -> None:
    count = MAX_BODY_BYTES // 60_000 + 10
    tools = [raw(f"t{n}", title="x" * 60_000) for n in range(count)]
    listing = await ListReader("clock").read([*tools, raw("small")], NOTHING)
    assert len(listing.body) <= MAX_BODY_BYTES
    assert 0 < len(listing.left_out) < 30
    assert listing.left_out[0].endswith(f"the tools together have over {MAX_BODY_BYTES} bytes")
    assert listing.tools[-1].name == "small"


async def test_a_tool_is_read_anew_when_anything_of_it_changes() -> None:
    reader = ListReader("clock")
    first = await reader.read([raw("a"), raw("b")], NOTHING)
    second = await reader.read([raw("a", "Otherwise."), raw("b"), raw("c")], NOTHING)
    assert [tool.definition.description for tool in second.tools] == ["Otherwise.", "Does it.", "Does it."]
    assert second.tools[1] is first.tools[1]
    third = await reader.read([raw("b"), raw("b"), {"name": "n", "x": float("nan")}, {"name": "s", "x": {1}}], NOTHING)
    assert [tool.name for tool in third.tools] == ["b", "n", "s"]


async def test_a_list_of_nothing_is_a_list(discovery: Discovery) -> None:
    server = Server(takes_s=0)
    discovery.know(server.known())
    await discovery.wait_for_listing(CLOCK, None)
    server.tools = []
    record = await discovery.wait_for_listing(CLOCK, None)
    assert (record.status, names(record), record.stale) == ("success", [], False)


@pytest.mark.judge
@pytest.mark.requirement("C-8-pin")
async def test_a_pinned_server_that_always_lists_other_names_is_refused_until_somebody_accepts(
    discovery: Discovery,
) -> None:
    server = Server(takes_s=0)
    discovery.know(server.known(pin=True))
    await discovery.wait_for_listing(CLOCK, None)
    for prefix in "abc":
        await discovery.keep(CLOCK, "h1", [raw(f"{prefix}{n}") for n in range(MAX_TOOLS)])
        await discovery.accept(CLOCK, [f"{prefix}{n}" for n in range(MAX_TOOLS)])
    record = discovery.record(CLOCK)
    assert (record.status, names(record)[0], record.stale) == ("failed", "b0", True)
    assert record.error is not None
    assert "accept what it lists" in record.error
    await discovery.accept(CLOCK, None)
    assert names(await discovery.wait_for_listing(CLOCK, None)) == ["now"]
