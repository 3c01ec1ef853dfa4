"""Equipping a saved toolset of 100 tools among 10,000: until an executor in use lists them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from time import perf_counter

from benchmarks.frame import MILLISECONDS, Batch, Row
from benchmarks.session_updates import opened_host
from toolplug import Caller, FunctionProvider, FunctionRegistry, Principal, ToolDefinition, ToolReference

TOOLS = 10_000
CHOSEN = 100
AGENT = "chooser"
OPERATOR = Principal(subject="operator", scopes=frozenset({"admin", "operator"}))


class Many(FunctionProvider):
    """Ten thousand tools."""

    def tools(self) -> Sequence[ToolDefinition]:
        return [ToolDefinition(name=f"tool-{index}") for index in range(TOOLS)]


@asynccontextmanager
async def equipped() -> AsyncGenerator[Batch]:
    """Equip and unequip; the store's commit counts, too."""
    async with FunctionRegistry({"many": Many()}) as many, opened_host() as host:
        host.register_toolset("many", "many", many)
        await host.toolsets.allow(AGENT, ("many",), by=OPERATOR, request_id="")
        caller = Caller(OPERATOR, AGENT)
        names = [ToolReference(f"many.tool-{index * (TOOLS // CHOSEN)}") for index in range(CHOSEN)]
        await host.saved_toolsets.build(caller, "chosen", names)
        executor = host.executor_for(OPERATOR, agent=AGENT)

        async def batch(n: int) -> float:
            spent = 0.0
            for _ in range(n):
                begun = perf_counter()
                await host.saved_toolsets.equip(caller, "chosen")
                listed = len(executor.catalog)
                spent += perf_counter() - begun
                await host.saved_toolsets.unequip(caller)
                assert (listed, len(executor.catalog)) == (CHOSEN, TOOLS)
            return spent

        yield batch


ROWS = (
    Row(
        name="equip 100 tools among 10,000",
        ours=equipped,
        hold=20,
        aim=10,
        unit=MILLISECONDS,
        pairs=15,
        batch_s=0,
    ),
)
