"""Results over their limit that are kept, and the tool that reads them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.execution.harness import Harness

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.execution.live import LiveCatalog
from toolplug.execution.plans import CallServices
from toolplug.execution.run import UnknownCalls
from toolplug.host.artifacts import Artifacts, read_result
from toolplug.stores.memory import MemoryStore
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.anyio

TEXT = "äöü日本🦦" * 50
OWNER = CallContext(principal=Principal(subject="alice", tenant="t1"), session="s1")
TTL_S = 60.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemoryStore]:
    async with MemoryStore(clock=clock) as opened:
        yield opened


@pytest.fixture
def artifacts(store: MemoryStore) -> Artifacts:
    return Artifacts(store, lambda: TTL_S)


@pytest.fixture
def reader(artifacts: Artifacts, harness: Harness) -> LiveCatalog:
    return LiveCatalog(
        UnknownCalls(harness.counters),
        read_result(artifacts, CallServices(accounting=harness.accounting, runner=harness.runner)),
    )


async def tool(call: object, context: object) -> str:
    return TEXT


async def kept(harness: Harness, artifacts: Artifacts) -> str:
    result = await harness.call(tool, context=OWNER, artifacts=artifacts, max_result_bytes=100)
    truncated: Any = result.metadata["truncated"]
    return truncated["handle"]


async def read(reader: LiveCatalog, context: CallContext = OWNER, **arguments: Any) -> ToolResult:
    return await reader.execute(ToolCall("c2", "read_result", arguments), context)


@pytest.mark.requirement("C-3-artifacts-kept")
async def test_a_large_result_is_its_head_its_size_and_a_handle(harness: Harness, artifacts: Artifacts) -> None:
    result = await harness.call(tool, context=OWNER, artifacts=artifacts, max_result_bytes=100)
    handle = re.search(r'"handle": "([A-Za-z0-9_-]{22})"', result.output)

    assert handle is not None
    size = len(TEXT.encode())
    head = TEXT.encode()[:100].decode(errors="ignore")
    missing = size - len(head.encode())
    note = f'[cut: {missing} of {size} bytes are missing; read them with read_result {{"handle": "{handle[1]}"}}]'
    assert result.output == f"{head}\n{note}"
    assert result.status is ToolStatus.SUCCESS


async def test_a_result_within_its_limit_is_not_kept(
    harness: Harness, artifacts: Artifacts, store: MemoryStore
) -> None:
    result = await harness.call(tool, context=OWNER, artifacts=artifacts)

    assert (result.output, await store.keys()) == (TEXT, [])


@pytest.mark.requirement("C-3-read-result")
async def test_the_pieces_are_the_whole(harness: Harness, artifacts: Artifacts, reader: LiveCatalog) -> None:
    handle = await kept(harness, artifacts)
    offset: int | None = 0
    pieces: list[str] = []
    while offset is not None:
        piece: Any = await read(reader, handle=handle, offset=offset, limit=77)
        pieces.append(piece.output)
        offset = piece.structured["next_offset"]

    assert "".join(pieces) == TEXT
    assert (await read(reader, handle=handle)).output == TEXT


@pytest.mark.requirement("C-3-read-result")
@pytest.mark.parametrize("wrong", [{"offset": -1}, {"limit": 0}, {"limit": 100_001}, {"offset": "0"}, {"other": 1}])
async def test_wrong_places_are_invalid_arguments(reader: LiveCatalog, wrong: dict[str, Any]) -> None:
    assert (await read(reader, handle="x", **wrong)).status is ToolStatus.INVALID_ARGUMENTS


async def test_an_offset_past_the_end_says_where_the_end_is(
    harness: Harness, artifacts: Artifacts, reader: LiveCatalog
) -> None:
    handle = await kept(harness, artifacts)
    result = await read(reader, handle=handle, offset=300)

    assert result.output == f"offset 300 is past the end; artifact {handle!r} has 300 characters"


@pytest.mark.requirement("C-3-read-result-own", "C-5-tenant-store")
@pytest.mark.parametrize(
    "stranger",
    [
        OWNER._replace(session="s2"),
        OWNER._replace(session=None),
        OWNER._replace(principal=Principal(subject="alice", tenant="t2")),
    ],
)
async def test_anothers_handle_answers_like_one_that_never_was(
    harness: Harness, artifacts: Artifacts, reader: LiveCatalog, stranger: CallContext
) -> None:
    handle = await kept(harness, artifacts)
    foreign = await read(reader, stranger, handle=handle)
    unknown = await read(reader, OWNER, handle="nothing")

    assert foreign.status is unknown.status is ToolStatus.TOOL_ERROR
    assert foreign.output.replace(handle, "nothing") == unknown.output
    assert unknown.output == "no artifact 'nothing'; it may be past its time"


@pytest.mark.requirement("C-3-artifact-ttl")
async def test_a_kept_result_is_gone_after_its_time(
    harness: Harness, artifacts: Artifacts, reader: LiveCatalog, clock: ManualClock
) -> None:
    handle = await kept(harness, artifacts)
    clock.now += TTL_S + 1

    assert (await read(reader, handle=handle)).output.startswith("no artifact")


async def test_a_store_that_fails_costs_the_handle_and_not_the_result(
    harness: Harness, artifacts: Artifacts, store: MemoryStore
) -> None:
    await store.aclose()
    result = await harness.call(tool, context=OWNER, artifacts=artifacts, max_result_bytes=100)

    assert result.status is ToolStatus.SUCCESS
    assert result.output.endswith("bytes are missing]")
