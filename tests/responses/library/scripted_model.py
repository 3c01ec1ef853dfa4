"""A model that says what a test has written down, without a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

from toolplug import FunctionProvider, FunctionRegistry, tool
from toolplug.errors import BackendFailed
from toolplug.responses import CallPart, Delta, Event, Loop, Question, ResponseRequest, ToolCaller

Answer = Sequence[Delta | BackendFailed]


class ScriptedModel:
    """Gives its answers one after another, and keeps what it was asked."""

    default_model: str | None = "scripted"

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[Question] = []
        self.closed = 0
        self._answers = list(answers)

    async def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """The next answer."""
        self.asked.append(question)
        try:
            for piece in self._answers.pop(0):
                if isinstance(piece, BackendFailed):
                    raise piece
                yield piece
        finally:
            self.closed += 1

    async def models(self) -> list[Mapping[str, object]]:
        """It lists none."""
        return []

    async def aclose(self) -> None:
        """There is nothing to close."""


class Sums(FunctionProvider):
    """Adds."""

    @tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


def says(text: str) -> Answer:
    """An answer without a call."""
    return [Delta(text=text, finish="stop")]


def calls(*parts: CallPart) -> Answer:
    """An answer that asks for calls."""
    return [Delta(calls=parts, finish="tool_calls")]


def adding(a: int, b: int, *, place: int = 0, call_id: str = "call_1") -> CallPart:
    """A call of `add`."""
    return CallPart(place, call_id, "add", f'{{"a": {a}, "b": {b}}}')


async def made(model: ScriptedModel, request: ResponseRequest, registry: FunctionRegistry) -> list[Event]:
    """Every event of one response."""
    return [event async for event in Loop(model, ToolCaller(registry), request).events()]
