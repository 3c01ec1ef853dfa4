"""A host whose calls are traced into memory, and commands that export to their output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler

from toolplug import CallContext, FunctionProvider, Host, Principal, ToolCall, ToolExecutor, ToolResult, open_host
from toolplug_otel import OpenTelemetry

NOTHING: Mapping[str, Any] = MappingProxyType({})
ME = Principal(scopes=frozenset({"tools:call"}))

PROBE = """
import asyncio

from toolplug import CallContext, FunctionProvider, ToolError, tool


class Probe(FunctionProvider):
    @tool
    async def add(self, a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b

    @tool
    async def fails(self) -> None:
        raise ToolError("the secret of the result")

    @tool
    def panics(self) -> None:
        raise RuntimeError("the secret of the exception")

    @tool
    async def waits(self, context: CallContext) -> None:
        context.report(0)
        await asyncio.Event().wait()

    @tool
    async def traced(self, context: CallContext) -> dict[str, str]:
        return dict(context.trace_context)
"""


@dataclass(frozen=True)
class Traced:
    """An entered host, and what was recorded of its calls."""

    host: Host
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracer_provider: TracerProvider

    async def call(self, name: str, context: CallContext | None = None, /, **arguments: object) -> ToolResult:
        context = (context or CallContext())._replace(principal=ME)
        return await self.tools.execute(ToolCall("c1", name, arguments), context)

    @property
    def tools(self) -> ToolExecutor:
        """The tools of the caller."""
        return self.host.executor_for(ME)

    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended since the last look, in that order."""
        spans = self.exporter.get_finished_spans()
        self.exporter.clear()
        return spans

    def span(self) -> ReadableSpan:
        """The only span that has ended since the last look."""
        (span,) = self.spans()
        return span

    def durations(self) -> list[tuple[Mapping[str, Any], int]]:
        """The attributes and the number of calls of each series of the histogram."""
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        found = [each for each in data.resource_metrics[0].scope_metrics[0].metrics if "execute_tool" in each.name]
        return [(dict(point.attributes), point.count) for each in found for point in each.data.data_points]


@dataclass(frozen=True)
class Recorder:
    """Opens hosts that are traced into the same memory."""

    folder: Path
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    @asynccontextmanager
    async def open(
        self,
        *,
        probe: Mapping[str, object] = NOTHING,
        more: Mapping[str, FunctionProvider] = NOTHING,
        sampler: Sampler = DEFAULT_ON,
        **sections: object,
    ) -> AsyncIterator[Traced]:
        """Enter a host with the probe, whose entry has these settings, and `more` providers."""
        traces, metrics = TracerProvider(sampler), MeterProvider([self.reader])
        traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        (self.folder / "probe.py").write_text(PROBE)
        entry = {"type": f"{self.folder}/probe.py:Probe", "enabled": True, **probe}
        config = {"store": "memory://", "providers": {"probe": entry}, **sections}
        otel = OpenTelemetry(traces, metrics)
        async with open_host(config, environ={}, providers={**more, "otel": otel}) as host:
            yield Traced(host, self.exporter, self.reader, traces)


OWN_SPAN = """
from opentelemetry import trace

from toolplug import CallContext, FunctionProvider, tool


class Probe(FunctionProvider):
    @tool
    async def traced(self, context: CallContext) -> str:
        with trace.get_tracer("provider").start_as_current_span("work"):
            return context.trace_context.get("traceparent", "none")
"""
WAIT_S = 60


@dataclass(frozen=True)
class Commands:
    """Commands in a folder with a configuration, with the variables `OTEL_*` that are given and no others."""

    folder: Path
    python: Path = Path(sys.executable)

    def __post_init__(self) -> None:
        (self.folder / "probe.py").write_text(OWN_SPAN)
        providers = {"probe": {"type": "./probe.py:Probe", "enabled": True}, "otel": {"enabled": True}}
        (self.folder / "providers.yaml").write_text(json.dumps({"store": "memory://", "providers": providers}))

    def toolplug(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of toolplug."""
        return self._run("-m", "toolplug", *words, **variables)

    def script(self, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script."""
        return self._run("-c", text, **variables)

    @contextmanager
    def serving(self, **variables: str) -> Iterator[tuple[str, Path]]:
        """The URL of a server, and the file that it prints to until it has ended."""
        printed = self.folder / "printed"
        command = [self.python, "-m", "toolplug", "serve", "--port", "0"]
        with (
            printed.open("w") as stdout,
            subprocess.Popen(
                command, cwd=self.folder, env=_environ(variables), stdout=stdout, stderr=subprocess.PIPE, text=True
            ) as process,
        ):
            assert process.stderr is not None
            try:
                found = (re.search(r"listening on (http://[^\s\"]+)", line) for line in process.stderr)
                yield next(each[1] for each in found if each), printed
            finally:
                process.terminate()
                process.stderr.read()

    def _run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *words],
            cwd=self.folder,
            env=_environ(variables),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    @staticmethod
    def exported(text: str) -> list[dict[str, Any]]:
        """The JSON objects that the console exporters have printed among other lines."""
        found: list[dict[str, Any]] = []
        decoder, at = json.JSONDecoder(), text.find("{\n")
        while at >= 0:
            value, end = decoder.raw_decode(text, at)
            found.append(value)
            at = text.find("{\n", end)
        return found


def _environ(variables: Mapping[str, str]) -> dict[str, str]:
    return {**{key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}, **variables}


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
