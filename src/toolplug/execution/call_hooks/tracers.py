"""Tracers: a span for each call, with the W3C headers that tools pass on."""

from __future__ import annotations

from typing import NamedTuple

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import CallSpan, CallTracer
from toolplug.crashes import CodeOwner
from toolplug.execution.call_hooks.isolation import crashed

_HOOK = "call_tracers"


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
                    self.context = self.context.of_trace(dict(span.headers))
            except BaseException as error:  # noqa: BLE001  code of a plugin
                crashed(_HOOK, owner, error, call, context, "the call has no span of it")

    def end(self, result: ToolResult | None) -> None:
        """End the spans, the last first; None if the caller went away."""
        for span, owner in reversed(self._begun):
            try:
                span.end(result)
            except BaseException as error:  # noqa: BLE001  code of a plugin
                crashed(_HOOK, owner, error, self._call, self.context, "its span is lost")
