"""Calls that still run when their caller, or the journal itself, goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from toolplug import CallContext, FunctionProvider, FunctionRegistry, Principal, ToolCall, ToolResult, tool
from toolplug.execution.resolved_limits import Limits
from toolplug.http import provider_routes
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.testing.provider_check import made
from toolplug_journal.provider import Journal

pytestmark = pytest.mark.anyio

ANN = Principal(subject="ann", scopes=frozenset({"admin"}))


class Waiting(FunctionProvider):
    """Waits until a test lets it go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.released = asyncio.Event()

    @tool
    async def wait(self) -> str:
        """Wait."""
        self.entered.set()
        await self.released.wait()
        return "done"


class Seen(Journal):
    """A journal whose close a test can wait for."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def aclose(self) -> None:
        await super().aclose()
        self.closed.set()


async def read(registry: FunctionRegistry) -> list[Mapping[str, Any]]:
    async def anybody(connection: object) -> Principal:
        return ANN

    transport = httpx2.ASGITransport(provider_routes(registry, auth=anybody))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return (await client.get("/v1/journal")).json()["calls"]


def call(registry: FunctionRegistry) -> asyncio.Task[ToolResult]:
    return asyncio.create_task(registry.execute(ToolCall("c1", "wait"), CallContext(principal=ANN)))


@pytest.mark.requirement("I2-8-journal")
async def test_a_call_whose_caller_goes_away_is_cancelled_in_the_journal() -> None:
    waiting = Waiting()
    async with FunctionRegistry({"journal": made(Journal), "waiting": waiting}) as registry:
        task = call(registry)
        await waiting.entered.wait()
        task.cancel()
        await asyncio.wait({task})
        (kept,) = await read(registry)
        assert (kept["tool"], kept["status"]) == ("wait", "cancelled")
        assert kept["duration_s"] is not None


@pytest.mark.requirement("I2-8-journal")
async def test_a_call_that_ends_after_the_journal_was_closed_has_its_end_all_the_same() -> None:
    waiting, first, second = Waiting(), made(Seen, key="journal"), made(Seen, key="journal")
    entry = ProviderEntry(key="journal", type="journal")
    waits = ProviderEntry(key="waiting", type="waiting", limits=Limits(drain=0.2))
    async with FunctionRegistry() as registry:
        await registry.apply([DesiredProvider(entry, lambda: first), DesiredProvider(waits, lambda: waiting)])
        task = call(registry)
        await waiting.entered.wait()
        await registry.apply(())
        await first.closed.wait()
        assert (await task).metadata == {"code": "draining"}
        await registry.apply([DesiredProvider(entry, lambda: second)])
        (kept,) = await read(registry)
        assert (kept["tool"], kept["status"]) == ("wait", "timeout")
