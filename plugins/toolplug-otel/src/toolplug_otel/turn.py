"""The spans of a response: `invoke_agent` for the whole, and `chat` for each question to the model's server.

https://github.com/open-telemetry/semantic-conventions-genai. Neither messages nor answers are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from toolplug import CallContext
from toolplug_otel.names import CONVERSATION, ERROR, OPERATION_NAME, caller_context, readable, trace_headers

_AGENT: Final = "gen_ai.agent.name"
_PROVIDER: Final = "gen_ai.provider.name"
_MODEL: Final = "gen_ai.request.model"
_FINISH: Final = "gen_ai.response.finish_reasons"
_USAGE: Final = "gen_ai.usage."
_SETTINGS: Mapping[str, str] = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_tokens": "gen_ai.request.max_tokens",
}
"""Numbers of a question, and their attributes."""


class Tokens(Protocol):
    """The tokens of one or more answers."""

    @property
    def input(self) -> int: ...
    @property
    def output(self) -> int: ...
    @property
    def cached(self) -> int: ...
    @property
    def reasoning(self) -> int: ...


class TracedChat:
    """The span of one question."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, usage: Tokens | None, finish: str | None, error: str | None) -> None:
        """End the span."""
        _end(self._span, usage, error, {} if finish is None else {_FINISH: (readable(finish),)})


class TracedResponse:
    """The span of one response, whose questions and calls are its children. `running` has those in progress."""

    def __init__(
        self, tracer: Tracer, span: Span, parent: Context | None, model: str, running: dict[str, Context]
    ) -> None:
        self.headers: Mapping[str, str] = trace_headers(span)
        self._tracer = tracer
        self._span = span
        self._model = model
        self._running = running
        self._context = set_span_in_context(span, parent)
        if self.headers:
            running[self.headers["traceparent"]] = self._context

    def start_chat(self, question: Mapping[str, object]) -> TracedChat:
        """Start the span of a question to the model's server."""
        attributes: dict[str, str | int | float] = {OPERATION_NAME: "chat", _PROVIDER: "openai", _MODEL: self._model}
        for name, attribute in _SETTINGS.items():
            value = question.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                attributes[attribute] = value
        name = f"chat {self._model}"
        return TracedChat(self._tracer.start_span(name, self._context, SpanKind.CLIENT, attributes))

    def end(self, usage: Tokens | None, error: str | None) -> None:
        """End the span."""
        if self.headers:
            del self._running[self.headers["traceparent"]]
        _end(self._span, usage, error, {})


def start_response(tracer: Tracer, model: str, context: CallContext, running: dict[str, Context]) -> TracedResponse:
    """Start the span of a response, a child of the current span, else of the caller's trace context."""
    parent, shown = caller_context(context), readable(model)
    attributes = {OPERATION_NAME: "invoke_agent", _PROVIDER: "openai", _MODEL: shown}
    if context.conversation:
        attributes[CONVERSATION] = context.conversation
    name = "invoke_agent"
    if context.agent is not None:
        attributes[_AGENT] = context.agent
        name = f"{name} {context.agent}"
    return TracedResponse(tracer, tracer.start_span(name, parent, attributes=attributes), parent, shown, running)


def _end(span: Span, usage: Tokens | None, error: str | None, attributes: dict[str, AttributeValue]) -> None:
    if usage is not None:
        attributes[f"{_USAGE}input_tokens"] = usage.input
        attributes[f"{_USAGE}output_tokens"] = usage.output
        if usage.cached:
            attributes[f"{_USAGE}cache_read.input_tokens"] = usage.cached
        if usage.reasoning:
            attributes[f"{_USAGE}reasoning.output_tokens"] = usage.reasoning
    if error is not None:
        attributes[ERROR] = error
        span.set_status(StatusCode.ERROR)
    span.set_attributes(attributes)  # the SDK takes a lock for each change
    span.end()
