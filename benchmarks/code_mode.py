"""Scripts of `toolplug-code-mode`: fifty calls in one, one that goes on elsewhere, stubs, and what a model reads.

Much of the work is done by the interpreter's process: the cost of a script is the CPU time of both.
`python -m benchmarks.code_mode` prints one task in fifty turns and in one script, for the page.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, closing
from functools import partial
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from pydantic_monty import AsyncFunctionSnapshot, AsyncFutureSnapshot, AsyncMonty, MontyComplete

from benchmarks.calling import ALICE
from benchmarks.code_mode_host import cpu_time, opened, run_script
from benchmarks.frame import KIBIBYTES, MILLISECONDS, Batch, Row
from benchmarks.peers import harness_script
from benchmarks.providers import Many
from benchmarks.tool_search import BYTES_A_TOKEN, TOKENS
from toolplug import (
    CallContext,
    Catalog,
    FunctionRegistry,
    Host,
    Principal,
    ToolCall,
)
from toolplug.parts.responses.backend import ModelAnswer
from toolplug.responses import CallPart, Delta, Loop, Question, ResponseRequest, ToolCaller
from toolplug_code_mode.functions import FunctionTables, stub_text

CALLS = 50
ITEMS = [f"item {number}" for number in range(CALLS)]
READS = f"total = 0\nfor n in range({CALLS}):\n    total += len(await echo(text='x'))\ntotal"
STUB = "async def echo(*, text: str) -> str: ..."
PERSON = Principal("person", "t1", frozenset({"approvals:write"}))
SCRIPT = (
    "\n".join([f"cost{n} = (await echo(text='item {n}')).upper()" for n in range(44)]) + "\nawait order(item='tea')"
)
"""2 KB: 44 calls, and one that a person must approve."""
MANY = 1_000
CHEAPEST = f"""items = {json.dumps(ITEMS)}
prices = [await price(item=item) for item in items]
min(prices, key=lambda each: each["cents"])["item"]"""
ANSWER_S = 0.5
"""What an answer of the model takes in the run for the page."""


def _worked(run: Callable[[], Awaitable[object]]) -> Batch:
    async def batch(n: int) -> float:
        before = cpu_time()
        for _ in range(n):
            await run()
        return cpu_time() - before

    return batch


async def _pause(host: Host, code: str) -> str:
    """Run a script until it waits, approve its call, and return the ticket."""
    asked = (await run_script(host, code))["approval"]
    assert isinstance(asked, Mapping)
    await host.approvals.decide(str(asked["id"]), "approve", PERSON)
    return str(asked["id"])


@asynccontextmanager
async def script() -> AsyncGenerator[Batch]:
    """Fifty calls, one after the other, in one script."""
    async with opened() as host:
        yield _worked(lambda: run_script(host, READS))


@asynccontextmanager
async def straight() -> AsyncGenerator[Batch]:
    """The same calls through the executor."""
    async with opened() as host:
        tools, context = host.executor_for(ALICE), CallContext(ALICE)
        call = ToolCall("c1", "echo", {"text": "x"})

        async def run() -> None:
            for _ in range(CALLS):
                await tools.execute(call, context)

        yield _worked(run)


@asynccontextmanager
async def alone(*, checked: bool = True) -> AsyncGenerator[Batch]:
    """The same script in the interpreter alone, checked against its stub or not; its calls are answered at once."""

    async def echo() -> None:
        """Stand for the function; it is never called."""

    async with AsyncMonty(max_processes=1) as pool:

        async def run() -> None:
            async with pool.checkout(type_check=checked, type_check_stubs=STUB) as session:
                snapshot = await session.feed_start(READS, external_lookup={"echo": echo})
                while not isinstance(snapshot, MontyComplete):
                    if isinstance(snapshot, AsyncFutureSnapshot):
                        snapshot = await snapshot.resume(
                            {each: {"return_value": "x"} for each in snapshot.pending_call_ids}
                        )
                    elif isinstance(snapshot, AsyncFunctionSnapshot):
                        snapshot = await snapshot.resume({"future": ...})
                    else:
                        snapshot = await snapshot.resume_auto()
            assert snapshot.output == CALLS

        yield _worked(run)


def in_harness() -> AbstractAsyncContextManager[Batch]:
    """Run the same script in pydantic-ai-harness."""
    return harness_script(READS, _worked)


@asynccontextmanager
async def resumed() -> AsyncGenerator[Batch]:
    """Go on in another process with a script of 2 KB: CPU time of that process and of its interpreter."""
    with TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db?shared=true"
        command = [sys.executable, "-m", "benchmarks.code_mode_host", store]
        async with opened(store) as first, AsyncExitStack() as life:
            other = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
            life.push_async_callback(other.wait)
            life.callback(other.kill)
            given, answers = other.stdin, other.stdout
            assert given is not None
            assert answers is not None
            number = 0

            async def batch(n: int) -> float:
                nonlocal number
                number += 1
                code = f"{SCRIPT}\n{number}"
                given.write(json.dumps([await _pause(first, code), code]).encode() + b"\n")
                output, spent = json.loads(await answers.readline())
                assert output == f'{{"result":{number}}}', output
                return spent * n

            await batch(1)
            yield batch


@asynccontextmanager
async def stored() -> AsyncGenerator[Batch]:
    """Return the bytes of the record of a paused script of 2 KB."""
    with TemporaryDirectory() as folder:
        async with opened(f"sqlite:///{folder}/store.db") as host:
            await run_script(host, SCRIPT)

            async def batch(n: int) -> float:
                with closing(sqlite3.connect(f"{folder}/store.db")) as connection:
                    ((size,),) = connection.execute(
                        "SELECT length(value) FROM records WHERE key LIKE '%/run/%'"
                    ).fetchall()
                return size * n

            yield batch


async def _catalog(prefix: str) -> Catalog:
    """Return a catalog of 1,000 tools that differ from those of any other prefix."""
    async with FunctionRegistry([Many(MANY, prefix)]) as registry:
        return registry.catalog


@asynccontextmanager
async def stubs(*, kept: bool) -> AsyncGenerator[Batch]:
    """Write the stubs of 1,000 tools; `kept`: again, for a list that is unchanged."""
    tables, number, same = FunctionTables("all", "code"), 0, await _catalog("same")

    async def batch(n: int) -> float:
        nonlocal number
        number += 1
        catalog = same if kept else await _catalog(f"tool_{number}")
        started = process_time()
        for _ in range(n):
            text = stub_text([*tables.of_catalog(catalog).by_name.values()])
        spent = process_time() - started
        assert text.count("async def ") == MANY
        return spent

    await batch(1)
    yield batch


class ScriptedModel:
    """A model that does one task, in turns or by a script, and counts what it reads and writes.

    `seconds` is what each of its answers takes.
    """

    default_model = "scripted"

    def __init__(self, calls: Sequence[tuple[str, Mapping[str, object]]], seconds: float = 0.0) -> None:
        self._calls = calls
        self._seconds = seconds
        self.read = self.written = self.turns = 0

    async def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """Make the next call, or say that all is done."""
        await asyncio.sleep(self._seconds)
        self.read += len(json.dumps(question, ensure_ascii=False).encode())
        if self.turns < len(self._calls):
            name, arguments = self._calls[self.turns]
            text = json.dumps(arguments)
            self.written += len(name) + len(text)
            delta = Delta(calls=(CallPart(0, f"call_{self.turns}", name, text),), finish="tool_calls")
        else:
            delta = Delta(text="item 0 is the cheapest.", finish="stop")
            self.written += len(delta.text)
        self.turns += 1
        yield delta

    async def models(self) -> list[ModelAnswer]:
        """Return no model."""
        return []


TURNS: Sequence[tuple[str, Mapping[str, object]]] = [("price", {"item": item}) for item in ITEMS]
ONE: Sequence[tuple[str, Mapping[str, object]]] = [("run_code", {"code": CHEAPEST})]


async def answered(calls: Sequence[tuple[str, Mapping[str, object]]], seconds: float = 0.0) -> ScriptedModel:
    """Have a model find the cheapest of fifty items."""
    model = ScriptedModel(calls, seconds)
    async with opened() as host:
        request = ResponseRequest(model="scripted", input="Which of these is the cheapest? " + ", ".join(ITEMS))
        loop = Loop(model, ToolCaller(host.executor_for(ALICE)), request, max_turns=CALLS + 1)
        async with aclosing(loop.events()) as events:
            async for _ in events:
                pass
    output = loop.draft.object()["output"]
    assert loop.draft.status == "completed", output
    assert model.turns == len(calls) + 1
    return model


@asynccontextmanager
async def tokens(calls: Sequence[tuple[str, Mapping[str, object]]]) -> AsyncGenerator[Batch]:
    """Count the bytes that a model reads and writes for one task."""

    async def batch(n: int) -> float:
        model = await answered(calls)
        return (model.read + model.written) * n

    yield batch


async def show() -> None:
    """Print one task in fifty turns and in one script, where each answer of the model takes half a second."""
    for name, calls in (("fifty turns", TURNS), ("one script", ONE)):
        started = perf_counter()
        model = await answered(calls, ANSWER_S)
        took = perf_counter() - started
        read, written = (size // BYTES_A_TOKEN for size in (model.read, model.written))
        print(f"{name}: {model.turns} answers, {read:,} tokens read, {written:,} written, {took:.1f} s")


ROWS = (
    Row(
        name="50 read-only calls in one script",
        ours=script,
        other=in_harness,
        against="pydantic-ai-harness' code mode",
        hold=1.0,
        aim=0.8,
        unit=MILLISECONDS,
        pairs=41,
        batch_s=0.02,
    ),
    Row(
        name="50 read-only calls in one script",
        ours=script,
        other=straight,
        against="the same calls straight",
        hold=60,
        aim=40,
        unit=MILLISECONDS,
        pairs=41,
        batch_s=0.02,
    ),
    Row(
        name="50 read-only calls in one script",
        ours=script,
        other=alone,
        against="the interpreter and its checker alone",
        hold=1.5,
        aim=1.25,
        unit=MILLISECONDS,
        pairs=41,
        batch_s=0.02,
    ),
    Row(
        name="50 read-only calls in the interpreter alone, without its checker",
        ours=partial(alone, checked=False),
        other=straight,
        against="the same calls straight",
        unit=MILLISECONDS,
        pairs=41,
        batch_s=0.02,
    ),
    Row(
        name="a paused script goes on in another process, CPU with its interpreter",
        ours=resumed,
        hold=20,
        aim=10,
        unit=MILLISECONDS,
        pairs=21,
        batch_s=0,
    ),
    Row(name="a paused script of 2 KB", ours=stored, hold=16, aim=8, unit=KIBIBYTES, pairs=3, batch_s=0),
    Row(
        name="stubs of 1,000 tools",
        ours=partial(stubs, kept=False),
        hold=50,
        aim=25,
        unit=MILLISECONDS,
        pairs=15,
        batch_s=0,
    ),
    Row(
        name="stubs of 1,000 tools, unchanged",
        ours=partial(stubs, kept=True),
        hold=5,
        aim=2,
        unit=MILLISECONDS,
        pairs=15,
        batch_s=0,
    ),
    Row(
        name="tokens of a task of 50 calls, in one script",
        ours=partial(tokens, ONE),
        other=partial(tokens, TURNS),
        against="in turns",
        hold=1 / 20,
        aim=1 / 40,
        unit=TOKENS,
        pairs=3,
        batch_s=0,
    ),
)

if __name__ == "__main__":
    asyncio.run(show())
