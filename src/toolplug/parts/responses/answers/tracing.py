"""Spans of a response, and of each answer of the model's server in it, by the tracers of plugins.

A tracer of the hook `call_tracers` that has `start_turn` makes them. What it raises is logged, and changes no answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from toolplug.catalog.call import CallContext
from toolplug.crashes import log_crash
from toolplug.errors import BackendFailed
from toolplug.execution.isolated_hooks import OwnedTracer, kind_of
from toolplug.parts.responses.backend import Backend, Delta, ModelAnswer, Question, Usage

R = TypeVar("R")

_CANCELLED = "cancelled"


class ChatSpan(Protocol):
    """The span of one question to the model's server.

    ```python
    from toolplug.responses import ChatSpan, Usage

    class Tokens(ChatSpan):
        def __init__(self, counted: list[int]) -> None:
            self.counted = counted

        def end(self, usage: Usage | None, finish: str | None, error: str | None) -> None:
            self.counted.append(0 if usage is None else usage.output)
    ```
    """

    def end(self, usage: Usage | None, finish: str | None, error: str | None) -> None:
        """End the span with the tokens and the finish reason, as far as they are known, and the code of an error."""
        ...


class TurnSpan(Protocol):
    """The span of a response, from its first question to its last call.

    ```python
    from collections.abc import Mapping

    from toolplug.responses import ChatSpan, Question, TurnSpan, Usage

    class Printed(TurnSpan, ChatSpan):
        headers: Mapping[str, str] = {}

        def start_chat(self, question: Question) -> ChatSpan:
            return self

        def end(self, usage: Usage | None, *why: str | None) -> None:
            print(usage, *why)
    ```
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """The W3C trace context that the calls of tools get in place of the caller's; empty to keep that."""
        ...

    def start_chat(self, question: Question) -> ChatSpan:
        """Start the span of a question."""
        ...

    def end(self, usage: Usage | None, error: str | None) -> None:
        """End the span with the tokens of all questions, and the code of an error."""
        ...


@runtime_checkable
class TurnTracer(Protocol):
    """Makes a span for each response.

    ```python
    from toolplug import CallContext
    from toolplug.responses import TurnSpan, TurnTracer

    class Tracer(TurnTracer):
        def __init__(self, span: TurnSpan) -> None:
            self.span = span

        def start_turn(self, model: str, context: CallContext) -> TurnSpan:
            print(model, "for", context.principal.subject)
            return self.span
    ```
    """

    def start_turn(self, model: str, context: CallContext) -> TurnSpan:
        """Start the span of a response; `context` is that of its calls."""
        ...


class _Owned(NamedTuple):
    span: TurnSpan
    by: OwnedTracer


class TracedTurn:
    """The spans of one response. It is a `Backend` that makes a span for each question; `error` is its last error."""

    def __init__(self, backend: Backend, tracers: Sequence[OwnedTracer], context: CallContext) -> None:
        self.default_model: str | None = backend.default_model
        self.context: CallContext = context
        self.error: str | None = None
        self._usage: Usage | None = None
        self._backend = backend
        self._tracers = [owned for owned in tracers if isinstance(owned.tracer, TurnTracer)]
        self._spans: list[_Owned] = []

    @property
    def is_traced(self) -> bool:
        """True if there is a tracer of responses."""
        return bool(self._tracers)

    def begin(self, model: str) -> None:
        """Start the spans."""
        for owned in self._tracers:
            tracer = owned.tracer
            assert isinstance(tracer, TurnTracer)
            span = _guard(owned, lambda tracer=tracer: tracer.start_turn(model, self.context))
            headers = None if span is None else _guard(owned, lambda span=span: dict(span.headers))
            if span is not None and headers is not None:
                self._spans.append(_Owned(span, owned))
                self.context = self.context.of_trace(headers) if headers else self.context

    def end(self) -> None:
        """End the spans, the last first."""
        for span, by in reversed(self._spans):
            _guard(by, lambda span=span: span.end(self._usage, self.error))

    async def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """Implement `Backend.ask`."""
        chats = [(_guard(by, lambda span=span: span.start_chat(question)), by) for span, by in self._spans]
        usage: Usage | None = None
        finish: str | None = None
        error: str | None = _CANCELLED
        try:
            async with aclosing(self._backend.ask(question, stream=stream)) as deltas:
                async for delta in deltas:
                    usage, finish = delta.usage or usage, delta.finish or finish
                    yield delta
            error = None
        except BackendFailed as failed:
            error = self.error = failed.code
            raise
        finally:
            self._usage = usage if self._usage is None else self._usage.plus(usage or Usage())
            for chat, by in chats:
                if chat is not None:
                    _guard(by, lambda chat=chat: chat.end(usage, finish, error))

    async def models(self) -> list[ModelAnswer]:
        """Implement `Backend.models`."""
        return await self._backend.models()

    async def aclose(self) -> None:
        """Do nothing: the backend is that of all responses."""


@contextmanager
def trace_turn(
    backend: Backend, tracers: Sequence[OwnedTracer], context: CallContext, model: str | None
) -> Generator[tuple[Backend, CallContext]]:
    """Trace a response until the block ends: gives the backend to ask, and the context for its calls."""
    turn = TracedTurn(backend, tracers, context)
    if not turn.is_traced:
        yield backend, context
        return
    turn.begin(model or backend.default_model or "")
    try:
        yield turn, turn.context
    except Exception as error:
        turn.error = turn.error or type(error).__name__
        raise
    except BaseException:
        turn.error = _CANCELLED
        raise
    finally:
        turn.end()


def _guard(owned: OwnedTracer, action: Callable[[], R]) -> R | None:
    """Return what a plugin's code returns; None if it raises, which is logged."""
    try:
        return action()
    except BaseException as error:  # noqa: BLE001  code of a plugin
        times = owned.failures.note(kind_of(error, owned.owner))
        if times is not None:
            log_crash("a tracer of responses", error, owned.owner, then=f"its span is lost{times}")
        return None
