"""Tool search: what a model is sent of 10,000 deferred tools, a search among them, and their index.

And what a list of tools that stays saves of a conversation's input.
"""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import compress, count, cycle, islice, product
from operator import ne
from time import process_time, thread_time
from types import MappingProxyType

from benchmarks.frame import MILLISECONDS, Batch, Row, Unit
from benchmarks.providers import Many
from benchmarks.session_views import Turns
from toolplug import FunctionRegistry, Principal, ToolCall, ToolDefinition, open_host
from toolplug.catalog.definition import Offered
from toolplug.catalog.render import Dialect
from toolplug.execution.live import LiveCatalog
from toolplug.search.index import make_indexes
from toolplug.search.ranking import search

TOOLS = 10_000
SEARCHES = 200
BYTES_A_TOKEN = 4
TOKENS = Unit(name="tokens", scale=1 / BYTES_A_TOKEN)
BYTES = Unit(name="bytes", scale=1)
WORST = 2
"""Of 200 searches, so many are slower than the 99th percentile."""

QUERIES = MappingProxyType(
    {
        "a tool": ("collection 4711", "search the documents of collection 12", "tool_9999"),
        "the word that every tool has": ("search", "documents", "collection"),
    }
)

VERBS = ("create", "delete", "list", "update", "find", "export", "archive", "merge", "rename", "share")
NOUNS = ("invoice", "customer", "ticket", "branch", "report", "meeting", "contact", "order", "folder", "payment")
PLACES = tuple(f"{one}{other}" for one in ("blue", "core", "edge", "north") for other in "abcdefghijklmnopqrstuvwxy")
QUESTIONS = tuple(
    template.format(verb=verb, noun=noun)
    for (verb, noun), template in zip(
        product(VERBS, NOUNS),
        cycle(
            ("{verb} the {noun}s of a customer", "please {verb} my {noun} in northc", "which tool can {verb} a {noun}?")
        ),
        strict=False,
    )
)
TURNS = 100
LIVE = 8
CACHED = 0.1
"""The usual price of input that was read before, against what is read anew."""


def described() -> list[ToolDefinition]:
    """Tools of a hundred systems with descriptions of 12 words, each different."""
    return [
        ToolDefinition(
            name=f"{place}_{verb}_{noun}",
            description=f"{verb.title()} the {noun} that a person names, with its history, in {place.title()}.",
        )
        for place, verb, noun in product(PLACES, VERBS, NOUNS)
    ]


@asynccontextmanager
async def made() -> AsyncGenerator[Batch]:
    """Make the index of all tools."""
    tools = described()

    async def batch(n: int) -> float:
        started = thread_time()
        make_indexes(tools)
        return (thread_time() - started) * n

    yield batch


@asynccontextmanager
async def updated() -> AsyncGenerator[Batch]:
    """Make the index after a change of one tool, from the one before."""
    tools = described()
    before = make_indexes(tools)

    async def batch(n: int) -> float:
        changed = [*tools[:4711], ToolDefinition(name="came_later", description="Has come later."), *tools[4712:]]
        started = thread_time()
        make_indexes(changed, before)
        return (thread_time() - started) * n

    yield batch


@asynccontextmanager
async def sized() -> AsyncGenerator[Batch]:
    """Count the bytes of the index for each tool, after a hundred different searches."""
    tools = described()

    async def batch(n: int) -> float:
        tracemalloc.start()
        indexes = make_indexes(tools)
        for question in QUESTIONS:
            search(indexes.both, question, 5)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size / len(tools) * n

    yield batch


@asynccontextmanager
async def conversed(stays: bool) -> AsyncGenerator[Batch]:
    """Return the cost in bytes of what a model is sent in a hundred turns, with one change of the tools in each."""
    operator, caller = Principal(scopes=frozenset({"admin"})), Principal(scopes=frozenset({"tools:call"}))
    providers = {f"live_{number}": Many(1, f"live_{number}") for number in range(LIVE)}

    async def batch(n: int) -> float:
        given = {"base": Many(15), **providers, "more": Many(15, "more")}
        async with open_host({"store": "memory://"}, providers=given, environ={}) as host:
            tools = host.executor_for(caller)
            view = tools.conversation()
            messages: list[dict[str, object]] = []
            cost, before = 0.0, ""
            for turn in range(TURNS):
                switch = host.enable if turn // LIVE % 2 else host.disable
                await switch(f"live_{turn % LIVE}", by=operator)
                told = view.changes() if stays else ""
                messages.append({"role": "user", "content": f"turn {turn}: {'word ' * 40}\n\n{told}"})
                sent = json.dumps([(view if stays else tools).for_openai(), messages])[:-2]
                cached = next(compress(count(), map(ne, before, sent)), len(before))
                cost += len(sent) - cached + CACHED * cached
                before = sent
                messages.append({"role": "assistant", "content": "word " * 40})
            return cost * n

    yield batch


@asynccontextmanager
async def deferred() -> AsyncGenerator[LiveCatalog]:
    """A registry of which every tool is searched for."""
    async with FunctionRegistry({"many": Many(TOOLS)}) as registry:
        yield registry.view(lambda catalog: registry.search.add_search_tools(catalog.offered(Offered("search"))))


@asynccontextmanager
async def sent(dialect: Dialect) -> AsyncGenerator[Batch]:
    """Count the bytes of the tools in a request."""
    async with deferred() as tools:

        async def batch(n: int) -> float:
            return float(len(tools.catalog.render(dialect)) * n)

        yield batch


@asynccontextmanager
async def slowest(queries: Sequence[str]) -> AsyncGenerator[Batch]:
    """Search 200 times through `execute`, and return the 99th percentile of their CPU times."""
    async with deferred() as tools:
        await tools.execute(ToolCall("1", "search_tools", {"query": queries[0]}))

        async def batch(n: int) -> float:
            costs: list[float] = []
            for query in islice(cycle(queries), SEARCHES):
                started = process_time()
                result = await tools.execute(ToolCall("1", "search_tools", {"query": query}))
                costs.append(process_time() - started)
                assert not result.is_error
            return sorted(costs)[-1 - WORST] * n

        yield batch


@asynccontextmanager
async def indexing() -> AsyncGenerator[Batch]:
    """Make the index by a first search, and return the longest turn of the loop meanwhile."""

    async def batch(n: int) -> float:
        # A registry for each: one that has made an index makes the next from that.
        async with deferred() as tools:
            len(tools.catalog)  # reshaping is no part of the search
            turns = Turns()
            taking = asyncio.create_task(turns.watch())
            await asyncio.sleep(0)
            await tools.execute(ToolCall("1", "search_tools", {"query": "collection"}))
            taking.cancel()
            return turns.longest * n

    yield batch


COMMON = (*VERBS, *NOUNS, "person", "history", "name")
"""Words that a tenth or more of the tools have, some of them all."""


@asynccontextmanager
async def first_used() -> AsyncGenerator[Batch]:
    """Return the slowest first search for a common word, of an index that has just been made."""
    tools = described()

    async def batch(n: int) -> float:
        indexes = make_indexes(tools)
        costs: list[float] = []
        for word in COMMON:
            started = thread_time()
            search(indexes.both, word, 5)
            costs.append(thread_time() - started)
        return max(costs) * n

    yield batch


ROWS = (
    *(
        Row(
            name=f"request that offers {TOOLS:,} deferred tools, {dialect}",
            ours=partial(sent, dialect),
            hold=2_500,
            aim=500,
            unit=TOKENS,
            pairs=1,
            batch_s=0,
        )
        for dialect in ("chat", "gemini", "mcp")
    ),
    *(
        Row(
            name=f"p99 of a search among {TOOLS:,} tools for {what}",
            ours=partial(slowest, queries),
            hold=1,
            aim=0.5,
            unit=MILLISECONDS,
            pairs=5,
            batch_s=0,
        )
        for what, queries in QUERIES.items()
    ),
    Row(
        name=f"first search among {TOOLS:,} tools for a word that many of them have",
        ours=first_used,
        hold=1,
        aim=0.5,
        unit=MILLISECONDS,
        pairs=7,
        batch_s=0,
    ),
    Row(
        name=f"longest turn of the loop while {TOOLS:,} tools are indexed",
        ours=indexing,
        hold=15,
        aim=5,
        unit=MILLISECONDS,
        pairs=5,
        batch_s=0,
    ),
    Row(
        name=f"index of {TOOLS:,} tools of 12 words, made in a thread",
        ours=made,
        hold=100,
        aim=60,
        unit=MILLISECONDS,
        pairs=7,
        batch_s=0,
    ),
    Row(
        name=f"index of {TOOLS:,} tools after a change of one",
        ours=updated,
        hold=5,
        aim=2,
        unit=MILLISECONDS,
        pairs=21,
        batch_s=0,
    ),
    Row(
        name=f"index of {TOOLS:,} tools, for each tool",
        ours=sized,
        hold=3_000,
        aim=1_000,
        unit=BYTES,
        pairs=1,
        batch_s=0,
    ),
    Row(
        name=f"input of {TURNS} turns with a change of tools each, list that stays",
        ours=partial(conversed, True),
        other=partial(conversed, False),
        against="made anew",
        hold=0.2,
        aim=0.17,
        unit=TOKENS,
        pairs=1,
        batch_s=0,
    ),
)
