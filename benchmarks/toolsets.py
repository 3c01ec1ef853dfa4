"""Agents: a call through everything that may stand before a tool, as many catalogs as verdicts, and explaining."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter

from benchmarks.calling import ALICE, repeated, trivial
from benchmarks.frame import COUNT, MILLISECONDS, Batch, Row
from benchmarks.providers import Many, Trivial
from benchmarks.session_updates import opened_host
from benchmarks.tools import TEXT
from toolplug import Caller, Catalog, FunctionRegistry, Principal, ToolCall, ToolReference
from toolplug.catalog.definition import Note
from toolplug.catalog.plan import TenantsGate

AGENT = "bench"
OPERATOR = Principal(subject="operator", scopes=frozenset({"admin", "operator"}))
TENANTS = 10_000
VERDICTS = 4
TOOLS = 10_000


@asynccontextmanager
async def through_an_agent() -> AsyncGenerator[Batch]:
    """Call the trivial tool by its wire name, as an agent with an equipped toolset and a note on the tool."""
    async with FunctionRegistry({"trivial": Trivial()}) as registry, opened_host() as host:
        host.register_toolset("bench", "bench", registry)
        await host.toolsets.allow(AGENT, ("bench",), by=ALICE, request_id="")
        caller = Caller(ALICE, AGENT)
        await host.saved_toolsets.build(caller, "chosen", [ToolReference("bench.echo")])
        await host.saved_toolsets.equip(caller, "chosen")
        await host.saved_toolsets.add_notes(caller, ToolReference("bench.echo"), [Note("style", "Be short.")])
        executor = host.executor_for(ALICE, agent=AGENT)
        assert executor.catalog["bench.echo"].definition.notes
        yield await repeated(executor, ToolCall(id="c1", name="bench__echo", arguments={"text": TEXT}))


@asynccontextmanager
async def seen_by_many_tenants() -> AsyncGenerator[Batch]:
    """Count the catalogs that all tenants together have, where each of two toolsets is for another half of them."""
    async with FunctionRegistry({"trivial": Trivial()}) as registry, opened_host() as host:
        for side in (1, 2):
            half = frozenset(f"t{index}" for index in range(TENANTS) if index // side % 2)
            host.register_toolset(f"half-{side}", f"half-{side}", registry.view(partial(only_for, half)))
        callers = [Principal(tenant=f"t{index}", scopes=OPERATOR.scopes) for index in range(TENANTS)]
        for caller in callers:
            await host.toolsets.allow(AGENT, ("half-1", "half-2"), by=caller, request_id="")

        async def batch(n: int) -> float:
            executors = [host.executor_for(caller, agent=AGENT) for caller in callers]
            return n * float(len({id(executor.catalog) for executor in executors}))

        yield batch


def only_for(tenants: frozenset[str], catalog: Catalog) -> Catalog:
    """The same tools, hidden from all other tenants."""
    gate = TenantsGate(tenants, "benchmark")
    return catalog.planned(lambda _, plan: replace(plan, gates=(gate,)))


@asynccontextmanager
async def explained(name: str) -> AsyncGenerator[Batch]:
    """Explain a tool of an agent's, which is there or not."""
    async with FunctionRegistry({"many": Many(TOOLS)}) as many, opened_host() as host:
        host.register_toolset("many", "many", many)
        await host.toolsets.allow(AGENT, ("many",), by=OPERATOR, request_id="")
        assert len(host.executor_for(OPERATOR, agent=AGENT).catalog) == TOOLS

        async def batch(n: int) -> float:
            begun = perf_counter()
            for _ in range(n):
                found = host.explain(name, OPERATOR, agent=AGENT)
                assert found.found or found.nearest
            return perf_counter() - begun

        yield batch


ROWS = (
    Row(
        name="through agent, prefix, notes and wire name",
        ours=through_an_agent,
        other=trivial,
        against="direct",
        hold=1.1,
        aim=1.0,
    ),
    Row(
        name="catalogs that 10,000 tenants have, of 4 verdicts",
        ours=seen_by_many_tenants,
        hold=VERDICTS,
        aim=VERDICTS,
        unit=COUNT,
        pairs=3,
        batch_s=0,
    ),
    *(
        Row(
            name=f"explain a tool among 10,000, {what}",
            ours=partial(explained, name),
            hold=50,
            aim=25,
            unit=MILLISECONDS,
            pairs=15,
            batch_s=0,
        )
        for what, name in (("found", "many.tool_4711"), ("misspelled", "many.tol_4711"))
    ),
)
