"""Tracers: a span for each call, with the W3C headers that tools pass on."""

from __future__ import annotations

from typing import NamedTuple

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import CallSpan, CallTracer
from toolplug.crashes import CodeOwner
from toolplug.execution.call_hooks.isolation import FailureCounts, kind_of, log_raised

_HOOK = "call_tracers"


class OwnedTracer(NamedTuple):
    """A tracer, the plugin that it comes from, and what it has raised."""

    tracer: CallTracer
    owner: CodeOwner
    failures: FailureCounts

    def report(self, error: BaseException, call: ToolCall, context: CallContext, then: str) -> None:
        """Log what the tracer raised, and its consequence, unless it was counted only."""
        times = self.failures.note(kind_of(error, self.owner))
        if times is not None:
            log_raised(_HOOK, self.owner, error, call, context, f"{then}{times}")


class Spans:
    """The spans of one call; what a tracer raises is logged, and affects neither the call nor other tracers."""

    __slots__ = ("_begun", "_call", "context")

    def __init__(
        self, tracers: tuple[OwnedTracer, ...], tool: ToolDefinition | None, call: ToolCall, context: CallContext
    ) -> None:
        self.context: CallContext = context
        self._call = call
        self._begun: list[tuple[CallSpan, OwnedTracer]] = []
        for owned in tracers:
            try:
                span = owned.tracer.start(call, self.context, tool)
                if span is not None:
                    self._begun.append((span, owned))
                    # The next tracer begins with these headers: its span is below this one, and the tool gets the
                    # innermost.
                    self.context = self.context.of_trace(dict(span.headers))
            except BaseException as error:  # noqa: BLE001  code of a plugin
                owned.report(error, call, context, "the call has no span of it")

    def end(self, result: ToolResult | None) -> None:
        """End the spans, the last first; None if the caller went away."""
        for span, owned in reversed(self._begun):
            try:
                span.end(result)
            except BaseException as error:  # noqa: BLE001  code of a plugin
                owned.report(error, self._call, self.context, "its span is lost")
