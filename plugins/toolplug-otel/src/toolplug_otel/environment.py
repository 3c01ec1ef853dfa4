"""The tracer and meter providers of the process: those that the application has set, else by the variables `OTEL_*`.

OpenTelemetry has one of each for a process, and nobody can replace them: the spans that providers of tools and
libraries make for themselves go there, too. So what is set here serves every host of the process, and the hosts after
a reload, and ends with the process; a host that closes only flushes it. The threads that export are daemon threads,
so a collector that does not answer never delays the end of the process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from time import monotonic
from typing import NamedTuple

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk import metrics as sdk_metrics
from opentelemetry.sdk import trace as sdk_trace
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import ProxyTracerProvider, TracerProvider

_SERVICE = "toolplug"
_UNKNOWN_SERVICE = "unknown_service"
_OTLP = "otlp"
_OTLP_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_SHORT = {"otlp_proto_http": _OTLP}
_PACKAGES = {
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "prometheus": "opentelemetry-exporter-prometheus",
    "zipkin": "opentelemetry-exporter-zipkin-json",
}
_EXPORTER_LOGS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
)
_LOG_EVERY_S = 60.0


class Providers(NamedTuple):
    """Where spans and durations go; None: nowhere."""

    traces: TracerProvider | None
    metrics: MeterProvider | None


class ProcessTracerProvider(sdk_trace.TracerProvider):
    """The tracer provider of a process whose application has set none."""


class ProcessMeterProvider(sdk_metrics.MeterProvider):
    """The meter provider of a process whose application has set none."""


def check_environment(environ: Mapping[str, str]) -> None:
    """Raise `ValueError` for a variable that names an exporter or a protocol that does not exist here."""
    if not _is_disabled(environ):
        for signal, is_set in (("traces", _set_tracer_provider()), ("metrics", _set_meter_provider())):
            for name in [] if is_set else _exporters(environ, signal):
                _exporter(name, signal)


def process_providers(environ: Mapping[str, str]) -> Providers:
    """Return the providers of the process, which are set first unless there are any.

    Raises `ValueError` for a variable that names an exporter or a protocol that does not exist here.
    """
    return Providers(None, None) if _is_disabled(environ) else Providers(_traces(environ), _metrics(environ))


def _traces(environ: Mapping[str, str]) -> TracerProvider | None:
    if found := _set_tracer_provider():
        return found
    exporters = [_exporter(name, "traces").load() for name in _exporters(environ, "traces")]
    if not exporters:
        return None
    provider = ProcessTracerProvider(resource=_resource(), shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter()))
    _limit_logs()
    trace.set_tracer_provider(provider)
    return trace.get_tracer_provider()


def _metrics(environ: Mapping[str, str]) -> MeterProvider | None:
    if found := _set_meter_provider():
        return found
    exporters = [_exporter(name, "metrics").load() for name in _exporters(environ, "metrics")]
    if not exporters:
        return None
    made = [exporter() for exporter in exporters]
    readers = [each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each) for each in made]
    _limit_logs()
    metrics.set_meter_provider(ProcessMeterProvider(readers, _resource(), shutdown_on_exit=False))
    return metrics.get_meter_provider()


def _is_disabled(environ: Mapping[str, str]) -> bool:
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _set_tracer_provider() -> TracerProvider | None:
    found = trace.get_tracer_provider()
    return None if isinstance(found, ProxyTracerProvider) else found


def _set_meter_provider() -> MeterProvider | None:
    found = metrics.get_meter_provider()
    return found if isinstance(found, sdk_metrics.MeterProvider) else None


def flush(providers: Providers, timeout_s: float) -> None:
    """Export what is waiting in the providers that were set here. Blocks, and may take longer than the time."""
    until = monotonic() + timeout_s
    if isinstance(providers.traces, ProcessTracerProvider):
        providers.traces.force_flush(_left_ms(until))
    if isinstance(providers.metrics, ProcessMeterProvider):
        providers.metrics.force_flush(_left_ms(until))


def _left_ms(until: float) -> int:
    return max(int((until - monotonic()) * 1_000), 1)


def _exporters(environ: Mapping[str, str], signal: str) -> list[str]:
    """Return the entry points that `OTEL_…_EXPORTER` names; as the specification says, OTLP if it is not set."""
    given = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "")
    names = [name.strip() for name in given.split(",") if name.strip()] or [_OTLP]
    return [_otlp(environ, signal) if name == _OTLP else name for name in names if name != "none"]


def _otlp(environ: Mapping[str, str], signal: str) -> str:
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environ.get(variable, "").strip()
        if protocol and protocol not in _OTLP_PROTOCOLS:
            raise ValueError(f"{variable}={protocol!r} is not supported; there are {', '.join(_OTLP_PROTOCOLS)}")
        if protocol:
            return _OTLP_PROTOCOLS[protocol]
    return _OTLP_PROTOCOLS["http/protobuf"]


def _exporter(name: str, signal: str) -> EntryPoint:
    group = f"opentelemetry_{signal}_exporter"
    found = next(iter(entry_points(group=group, name=name)), None)
    if found is None:
        known = ", ".join(sorted({_SHORT.get(point.name, point.name) for point in entry_points(group=group)}))
        hint = f" (pip install {_PACKAGES[name]})" if name in _PACKAGES else ""
        raise ValueError(f"OTEL_{signal.upper()}_EXPORTER: no exporter {name!r} is installed{hint}; there are {known}")
    return found


def _resource() -> Resource:
    """Return the resource of the environment; the service is `toolplug` unless a variable names it."""
    resource = Resource.create()
    named = not str(resource.attributes.get(SERVICE_NAME, _UNKNOWN_SERVICE)).startswith(_UNKNOWN_SERVICE)
    return resource if named else resource.merge(Resource({SERVICE_NAME: _SERVICE}))


class _OneAMinute(logging.Filter):
    """Passes one line a minute: a collector that does not answer would be reported every few seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + _LOG_EVERY_S
        return True


def _limit_logs() -> None:
    for name in _EXPORTER_LOGS:
        log = logging.getLogger(name)
        if not any(isinstance(each, _OneAMinute) for each in log.filters):
            log.addFilter(_OneAMinute())
