"""Spans of `toolplug-otel`: what they add to a call beside the SDK's own span, and that none cost nothing.

Both sides use one tracer provider, which samples everything and exports in batches to an exporter that drops them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from benchmarks.applications.responses_host import Dropping
from benchmarks.calling import repeated, trivial
from benchmarks.connection import Connection
from benchmarks.frame import MILLISECONDS, Batch, Row, timed
from benchmarks.process import started
from benchmarks.providers import Trivial
from benchmarks.responses import REQUESTS, ours
from benchmarks.tools import TEXT
from toolplug import FunctionRegistry, ToolCall
from toolplug_otel import OpenTelemetry

ATTRIBUTES = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.call.id": "c1",
    "gen_ai.tool.name": "echo",
    "gen_ai.tool.type": "function",
    "gen_ai.tool.description": "Return the text.",
}
_PAIRS, _BATCH_S = 61, 0.02
"""The difference of two costs needs longer batches: in short ones the first calls after a collection dominate it."""

CALL = ToolCall(id="c1", name="echo", arguments={"text": TEXT})


@asynccontextmanager
async def exporting(sampler: Sampler) -> AsyncGenerator[TracerProvider]:
    """A tracer provider whose spans are dropped in batches."""
    provider = TracerProvider(sampler, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Dropping(), max_queue_size=100_000))
    yield provider
    provider.shutdown()


@asynccontextmanager
async def extra(sampler: Sampler = ALWAYS_ON, *, metrics: bool = False) -> AsyncGenerator[Batch]:
    """What spans add to a call: batches of traced and of plain calls, and the difference of their costs."""
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False) if metrics else None
    async with (
        exporting(sampler) as provider,
        FunctionRegistry({"trivial": Trivial(), "otel": OpenTelemetry(provider, meters)}) as traced,
        trivial() as plain,
    ):
        with_spans = await repeated(traced, CALL)

        async def batch(n: int) -> float:
            return await with_spans(n) - await plain(n)

        yield batch


@asynccontextmanager
async def bare_span() -> AsyncGenerator[Batch]:
    """The SDK's own span with the same name and attributes, started and ended."""
    async with exporting(ALWAYS_ON) as provider:
        tracer = provider.get_tracer("bare")

        async def run(n: int) -> None:
            for _ in repeat(None, n):
                tracer.start_span("execute_tool echo", attributes=ATTRIBUTES).end()

        yield timed(run)


@asynccontextmanager
async def unconfigured() -> AsyncGenerator[Batch]:
    """Calls beside the plugin without exporters."""
    os.environ.update(OTEL_TRACES_EXPORTER="none", OTEL_METRICS_EXPORTER="none")
    async with FunctionRegistry({"trivial": Trivial(), "otel": OpenTelemetry()}) as registry:
        yield await repeated(registry, CALL)


@asynccontextmanager
async def turns(*, traced: bool) -> AsyncGenerator[Batch]:
    """CPU of the host for a response with one hosted call: two questions to a model in a process of its own."""
    message = ours("call 1")
    with started("benchmarks.server", "scripted_model") as backend:
        os.environ["BENCHMARK_MODEL_URL"] = f"http://127.0.0.1:{backend.port}/v1"
        os.environ.pop("BENCHMARK_SPANS", None)
        if traced:
            os.environ["BENCHMARK_SPANS"] = "1"
        with started("benchmarks.server", "responses_host") as host, Connection(host.port) as connection:

            async def batch(n: int) -> float:
                before = host.cpu_s()
                for _ in range(n * REQUESTS):
                    connection.ask(message)
                return (host.cpu_s() - before) / REQUESTS

            yield batch


ROWS = (
    Row(
        name="a span for a call, in addition to the call",
        ours=extra,
        other=bare_span,
        against="bare SDK span",
        hold=2.5,
        aim=2.0,
        pairs=_PAIRS,
        batch_s=_BATCH_S,
    ),
    Row(
        name="span and duration for a call, in addition to the call",
        ours=partial(extra, metrics=True),
        other=bare_span,
        against="bare SDK span",
        hold=2.5,
        aim=2.0,
        pairs=_PAIRS,
        batch_s=_BATCH_S,
    ),
    Row(
        name="a span that is not sampled, in addition to the call",
        ours=partial(extra, ALWAYS_OFF),
        other=bare_span,
        against="bare SDK span",
        hold=1.0,
        aim=0.5,
        pairs=_PAIRS,
        batch_s=_BATCH_S,
    ),
    Row(
        name="full call, trivial, without exporters",
        ours=unconfigured,
        other=trivial,
        against="without the plugin",
        hold=1.05,
        aim=1.0,
    ),
    Row(
        name="full turn with a hosted call, its spans exported, server CPU",
        ours=partial(turns, traced=True),
        other=partial(turns, traced=False),
        against="without the plugin",
        hold=1.15,
        aim=1.05,
        unit=MILLISECONDS,
        pairs=31,
        batch_s=0,
    ),
)
