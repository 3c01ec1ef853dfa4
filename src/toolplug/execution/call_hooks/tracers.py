"""Tracers: a span for each call, with the W3C headers that tools pass on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition
from toolplug.crashes import CodeOwner
from toolplug.execution.call_hooks.isolation import crashed

_HOOK = "call_tracers"


class CallSpan(Protocol):
    """The span of one call, of a tracer."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The W3C headers of the span, `traceparent` and `tracestate`, for what the tool calls itself."""
        ...

    def end(self, result: ToolResult | None) -> None:
        """End the span with the result of the call; None if the caller went away."""
        ...


class CallTracer(Protocol):
    """Makes a span for each call, also for refused ones; the hook `call_tracers` returns them."""

    def start(self, call: ToolCall, context: CallContext, tool: ToolDefinition | None) -> CallSpan | None:
        """Begin the span of a call, or return None for no span; `tool` is None for an unknown name.

        Runs before everything else of the call and in the context of the caller, so that spans of the tool itself are
        children of one that is made current here.
        """
        ...


class OwnedTracer(NamedTuple):
    """A tracer, and the plugin that it comes from."""

    tracer: CallTracer
    owner: CodeOwner


class Spans:
    """The spans of one call; what a tracer raises is logged, and affects neither the call nor other tracers."""

    __slots__ = ("_begun", "_call", "context")

    def __init__(
        self, tracers: tuple[OwnedTracer, ...], tool: ToolDefinition | None, call: ToolCall, context: CallContext
    ) -> None:
        self.context: CallContext = context
        self._call = call
        self._begun: list[tuple[CallSpan, CodeOwner]] = []
        for tracer, owner in tracers:
            try:
                span = tracer.start(call, self.context, tool)
                if span is not None:
                    self._begun.append((span, owner))
                    self.context = self.context._replace(trace_context=dict(span.headers))
            except BaseException as error:  # noqa: BLE001  code of a plugin
                crashed(_HOOK, owner, error, call, context, "the call has no span of it")

    def end(self, result: ToolResult | None) -> None:
        """End the spans, the last first; None if the caller went away."""
        for span, owner in reversed(self._begun):
            try:
                span.end(result)
            except BaseException as error:  # noqa: BLE001  code of a plugin
                crashed(_HOOK, owner, error, self._call, self.context, "its span is lost")
