"""Exporters by the variables `OTEL_*`, in processes of their own: OpenTelemetry sets its providers once a process."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

pytestmark = pytest.mark.process


def test_a_command_exports_its_span_and_that_of_the_tool_before_it_ends(commands: Any) -> None:
    done = commands.toolplug("call", "traced", OTEL_TRACES_EXPORTER="console", OTEL_METRICS_EXPORTER="console")
    assert done.returncode == 0, done.stderr
    work, call, metrics = commands.exported(done.stderr)
    assert (call["name"], work["name"], work["parent_id"]) == (
        "execute_tool traced",
        "work",
        call["context"]["span_id"],
    )
    assert call["resource"]["attributes"]["service.name"] == "toolplug"
    (metric,) = metrics["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    assert (metric["name"], metric["unit"]) == ("gen_ai.execute_tool.duration", "s")
    span = call["context"]
    assert f"00-{span['trace_id'][2:]}-{span['span_id'][2:]}-03" in done.stdout


@pytest.mark.parametrize(
    "variables",
    [{"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}],
)
def test_without_an_exporter_there_is_no_span(commands: Any, variables: dict[str, str]) -> None:
    done = commands.toolplug("call", "traced", **variables)
    assert (done.returncode, done.stdout) == (0, "none\n"), done.stderr


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OTEL_TRACES_EXPORTER": "consol"}, "OTEL_TRACES_EXPORTER: no exporter 'consol' is installed; there are"),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, "(pip install opentelemetry-exporter-prometheus)"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL='http/json' is not supported"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "(pip install opentelemetry-exporter-otlp-proto-grpc)"),
    ],
)
def test_a_variable_that_names_no_exporter_stops_the_start(
    commands: Any, variables: dict[str, str], message: str
) -> None:
    done = commands.toolplug("call", "traced", **variables)
    assert done.returncode == 1
    printed = done.stdout + done.stderr
    assert re.match(r"providers\.yaml:1:\d+: providers\.otel: ", printed), printed
    assert message in printed
    assert "Traceback" not in printed


def test_the_service_has_the_name_that_a_variable_gives_it(commands: Any) -> None:
    variables = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none", "OTEL_SERVICE_NAME": "desk"}
    done = commands.toolplug("call", "traced", **variables)
    assert {span["resource"]["attributes"]["service.name"] for span in commands.exported(done.stderr)} == {"desk"}


MANY = """
import asyncio
from toolplug import CallContext, Principal, ToolCall, open_host

ME = CallContext(Principal(scopes=frozenset({"tools:call"})))

async def main():
    async with open_host("providers.yaml") as host:
        tools = host.executor_for(ME.principal)
        for number in range(3_000):
            result = await tools.execute(ToolCall("c1", "traced", {}), ME)
            assert result.output.startswith("00-"), result
    print("closed")

asyncio.run(main())
"""


def test_a_collector_that_never_answers_holds_up_neither_calls_nor_the_end(commands: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "600",  # longer than the test waits
            "OTEL_BSP_SCHEDULE_DELAY": "1",
        }
        done = commands.script(MANY, **variables)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr


def test_a_collector_that_is_gone_is_reported_in_a_few_lines(commands: Any) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "1"}
    done = commands.script(MANY, **variables)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr
    assert "encountered while exporting span" in done.stderr
    assert len(done.stderr.splitlines()) < 10, done.stderr


HOSTS = """
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from toolplug import CallContext, Principal, ToolCall, open_host

ME = CallContext(Principal(scopes=frozenset({"tools:call"})))
exporter = InMemorySpanExporter()
if APPLICATION:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

async def call(host):
    tools = host.executor_for(ME.principal)
    return (await tools.execute(ToolCall("c1", "traced", {}), ME)).output

async def main():
    async with open_host("providers.yaml") as one, open_host("providers.yaml") as two:
        print(await call(one), await call(two))
    async with open_host("providers.yaml") as again:
        print(await call(again))
    print(len(exporter.get_finished_spans()), type(trace.get_tracer_provider()).__name__)

asyncio.run(main())
"""


@pytest.mark.parametrize("application", [True, False])
def test_the_hosts_of_a_process_share_its_providers(commands: Any, application: bool) -> None:
    script = HOSTS.replace("APPLICATION", str(application))
    variables = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}
    done = commands.script(script, **variables)
    assert done.returncode == 0, done.stderr
    spans = commands.exported(done.stdout)
    if application:
        assert (spans, done.stdout.split()[-2:]) == ([], ["6", "TracerProvider"])
    else:
        assert [span["name"] for span in spans] == ["work", "execute_tool traced"] * 3
        assert done.stdout.split()[-2:] == ["0", "ProcessTracerProvider"]
    assert done.stderr == ""
