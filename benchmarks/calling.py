"""One call again and again, for the rows that compare with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat

from benchmarks.frame import Batch, timed
from benchmarks.providers import Trivial
from benchmarks.tools import TEXT
from toolplug import CallContext, FunctionRegistry, Principal, ToolCall, ToolExecutor

ALICE = Principal(subject="alice", tenant="t1", scopes=frozenset({"tools:call"}))


async def repeated(executor: ToolExecutor, call: ToolCall) -> Batch:
    """The same call again and again; it must succeed once before it is measured."""
    context = CallContext(principal=ALICE)
    result = await executor.execute(call, context)
    assert not result.is_error, result

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await executor.execute(call, context)

    return timed(run)


@asynccontextmanager
async def calling(name: str) -> AsyncGenerator[Batch]:
    """Call one of the trivial tools."""
    async with FunctionRegistry({"trivial": Trivial()}) as registry:
        yield await repeated(registry, ToolCall(id="c1", name=name, arguments={"text": TEXT}))


trivial = partial(calling, "echo")
