"""Spans of `toolplug-otel`: what they add to a call beside the SDK's own span, and that none cost nothing.

Both sides use one tracer provider, which samples everything and exports in batches to an exporter that drops them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from benchmarks.calling import repeated, trivial
from benchmarks.frame import Batch, Row, timed
from benchmarks.providers import Trivial
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


class Dropping(SpanExporter):
    """Drops what it is given."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop the spans."""
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close nothing."""


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
)
