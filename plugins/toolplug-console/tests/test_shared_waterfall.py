"""What the waterfall groups by: the trace ids of `toolplug-otel`, and calls of every process that serves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.cli.process import PATIENCE_S, serving

from toolplug import CallContext, Principal, open_host
from toolplug_otel import OpenTelemetry

from .conftest import Sample

VISITOR = Principal("ann", scopes=frozenset({"tools:call", "tools:read"}))
CALLS = 12
FEED = "/console/calls"


@pytest.mark.anyio
@pytest.mark.requirement("I33-waterfall")
async def test_the_trace_id_of_a_call_is_that_of_its_exported_span() -> None:
    exporter = InMemorySpanExporter()
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
    config = {"store": "memory://", "providers": {"console": {"enabled": True}}}
    coded = {"sample": Sample(), "otel": OpenTelemetry(tracer_provider=tracer_provider)}
    host = open_host(config, environ={}, providers=coded)
    async with host:
        executor = host.executor_for(VISITOR)
        await executor.call("echo", {"text": "x"}, CallContext(principal=VISITOR))
        console: Any = host.plugins.get_plugin("console")
        with console.feed.viewer(VISITOR) as viewer:
            (batch,) = await viewer.batches(PATIENCE_S)
    (call,) = json.loads(batch.decode().partition("data: ")[2])["calls"]
    (span,) = [each for each in exporter.get_finished_spans() if each.name == "execute_tool echo"]
    assert call["trace_id"] == f"{span.context.trace_id:032x}"


def seen_calls(url: str) -> list[dict[str, Any]]:
    """The calls that the process of this connection remembers."""
    with httpx2.stream("GET", f"{url}{FEED}", timeout=PATIENCE_S) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))["calls"]
    raise AssertionError("the stream has ended")


@pytest.mark.process
@pytest.mark.requirement("I33-waterfall", "I33-hour")
def test_every_worker_shows_the_calls_of_all(tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text(
        "providers: {hello: {enabled: true}}\nstore: sqlite:///./state.db\n", "utf-8"
    )
    with serving("--workers", "2", folder=tmp_path) as service:
        for number in range(CALLS):  # each on a connection of its own: the kernel gives them to either process
            headers = {"x-request-id": f"request-{number}"}
            body = {"name": "hello", "arguments": {"name": "Ada"}}
            httpx2.post(f"{service.url}/v1/tool-calls", json=body, headers=headers, timeout=PATIENCE_S)
        wanted = {f"request-{number}" for number in range(CALLS)}
        # Eight connections in a row with all of them: either process has answered one, but for a chance of 1 in 128.
        complete = 0
        while complete < 8:
            found = {call["request_id"] for call in seen_calls(service.url)}
            assert found <= wanted
            complete = complete + 1 if found == wanted else 0
        service.process.terminate()
        assert service.end() == 0, service.lines
