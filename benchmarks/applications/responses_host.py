"""A host of the Responses API over the model at `BENCHMARK_MODEL_URL`; with `BENCHMARK_SPANS`, its turns are traced."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from starlette.types import ASGIApp

from toolplug import FunctionProvider, open_host
from toolplug.http import create_app
from toolplug_otel import OpenTelemetry

KEY = "only-for-benchmarks-7f0c1d52"


class Dropping(SpanExporter):
    """Drops what it is given."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop the spans."""
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close nothing."""


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The host's application."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Dropping(), max_queue_size=100_000))
    traced: dict[str, FunctionProvider] = {"otel": OpenTelemetry(provider)} if "BENCHMARK_SPANS" in os.environ else {}
    host = open_host(
        {
            "providers": {"hello": {"enabled": True}},
            "auth": {"api_keys": [{"key": KEY, "subject": "alice", "tenant": "t1"}]},
            "responses": {"backend": {"base_url": os.environ["BENCHMARK_MODEL_URL"], "model": "scripted"}},
            "store": "memory://",
        },
        providers=traced,
    )
    async with host:
        yield create_app(host)
