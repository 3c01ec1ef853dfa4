"""The spans of tool calls and of responses, by the OpenTelemetry conventions for generative AI.

https://github.com/open-telemetry/semantic-conventions-genai, `execute_tool`. Neither arguments nor results are
recorded, nor anything else that a tool, a model or an exception says.
"""

from __future__ import annotations

from contextvars import Token
from time import perf_counter

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.trace import Span, StatusCode, Tracer, set_span_in_context

from toolplug import CallContext, ToolCall, ToolDefinition, ToolResult, ToolStatus
from toolplug_otel.names import ERROR, MAX_NAME, OPERATION_NAME, caller_context, readable, trace_headers
from toolplug_otel.turn import TracedResponse, start_response

OPERATION = "execute_tool"
DURATION = "gen_ai.execute_tool.duration"

_NAME = "gen_ai.tool.name"
_CALL_ID = "gen_ai.tool.call.id"
_DESCRIPTION = "gen_ai.tool.description"
_TYPE = "gen_ai.tool.type"

_SESSION = "session"
_MAX_DESCRIPTION = 1_024
_BUCKETS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)


def duration_histogram(meter: Meter) -> Histogram:
    """Return the histogram of the durations of calls, in seconds."""
    return meter.create_histogram(
        DURATION, "s", "The duration of tool calls.", explicit_bucket_boundaries_advisory=_BUCKETS_S
    )


class ToolSpan:
    """The span of one call, which is the current one until `end`."""

    __slots__ = ("_began", "_duration", "_label", "_span", "_token")

    def __init__(self, span: Span, parent: Context | None, label: str | None, duration: Histogram) -> None:
        self._span = span
        self._label = label
        self._duration = duration
        self._token: Token[Context] = otel_context.attach(set_span_in_context(span, parent))
        self._began = perf_counter()

    @property
    def headers(self) -> dict[str, str]:
        """The W3C headers of the span."""
        return trace_headers(self._span)

    def end(self, result: ToolResult | None) -> None:
        """End the span and record its duration; None for a call whose caller has gone."""
        seconds = perf_counter() - self._began
        attributes = {OPERATION_NAME: OPERATION}
        if self._label is not None:
            attributes[_NAME] = self._label
        status = ToolStatus.CANCELLED if result is None else result.status
        if status is not ToolStatus.SUCCESS:
            attributes[ERROR] = status.value
            if self._span.is_recording():
                self._span.set_attribute(ERROR, status.value)
                self._span.set_status(StatusCode.ERROR)
        self._duration.record(seconds, attributes)
        self._span.end()
        otel_context.detach(self._token)


class ToolTracer:
    """Starts the spans of tool calls and of responses."""

    def __init__(self, tracer: Tracer, duration: Histogram) -> None:
        self._tracer = tracer
        self._duration = duration
        self._running: dict[str, Context] = {}

    def start_turn(self, model: str, context: CallContext) -> TracedResponse:
        """Start the span of a response, which is the parent of its calls' spans."""
        return start_response(self._tracer, model, context, self._running)

    def start(self, call: ToolCall, context: CallContext, tool: ToolDefinition | None) -> ToolSpan:
        """Start the span of a call, a child of its response's, else of the current span or the caller's trace context.

        An unknown name may be any text, so it is neither in the name of the span nor in the metric; the metric has the
        tools of all sessions together, since applications choose their names.
        """
        label = None
        parent = self._running.get(context.trace_context.get("traceparent", "")) or caller_context(context)
        attributes = {OPERATION_NAME: OPERATION, _CALL_ID: call.id[:MAX_NAME]}
        if tool is None:
            name = OPERATION
            attributes[_NAME] = readable(call.name)
        else:
            name = f"{OPERATION} {tool.name}"
            label = tool.ref.source if tool.ref.kind == _SESSION else tool.name
            attributes[_NAME] = tool.name
            attributes[_TYPE] = "extension" if tool.ref.kind == "mcp" else "function"
            if tool.description:
                attributes[_DESCRIPTION] = tool.description[:_MAX_DESCRIPTION]
        span = self._tracer.start_span(name, parent, attributes=attributes)
        return ToolSpan(span, parent, label, self._duration)
