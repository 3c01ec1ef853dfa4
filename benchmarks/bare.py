"""Tools with nothing around them: a coroutine from call to result, as its author would write it by hand, awaited.

No look-up, no validation, no deadline, no fault boundary, no counting. This is the "bare await" of the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat

from benchmarks.frame import Batch, timed
from benchmarks.tools import HITS, SEARCH, TEXT, echo_blocking
from toolplug import CallContext, ToolCall, ToolResult

Execute = Callable[[ToolCall, CallContext], Awaitable[ToolResult]]


async def echo(call: ToolCall, context: CallContext) -> ToolResult:
    """Return the text."""
    return ToolResult(call.id, call.name, call.arguments["text"])  # pyright: ignore  its arguments are an object


async def echo_later(call: ToolCall, context: CallContext) -> ToolResult:
    """Return the text in the loop's next turn."""
    await asyncio.sleep(0)
    return ToolResult(call.id, call.name, call.arguments["text"])  # pyright: ignore  its arguments are an object


async def search(call: ToolCall, context: CallContext) -> ToolResult:
    """Return the hits, not encoded."""
    return ToolResult(call.id, call.name, structured=HITS)


async def echo_text(text: str) -> str:
    """Return the text, and nothing around it."""
    return text


@asynccontextmanager
async def text_awaited() -> AsyncGenerator[Batch]:
    """The least that an await can be: no call, no context, no result."""

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await echo_text(text=TEXT)

    yield timed(run)


@asynccontextmanager
async def _awaited(execute: Execute, arguments: dict[str, object]) -> AsyncGenerator[Batch]:
    call, context = ToolCall("c1", execute.__name__, arguments), CallContext()

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await execute(call, context)

    yield timed(run)


awaited = partial(_awaited, echo, {"text": TEXT})
awaited_later = partial(_awaited, echo_later, {"text": TEXT})
awaited_search = partial(_awaited, search, SEARCH)


@asynccontextmanager
async def to_thread() -> AsyncGenerator[Batch]:
    """Run the synchronous tool in asyncio's own threads."""

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await asyncio.to_thread(echo_blocking, text=TEXT)

    yield timed(run)
