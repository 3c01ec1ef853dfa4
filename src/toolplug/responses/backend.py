"""The interface of a model's server: answers to Chat Completions requests, in pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Literal, NamedTuple, Protocol

from typing_extensions import TypedDict

Question = Mapping[str, object]
"""The body of a Chat Completions request without `stream`."""


class ModelAnswer(TypedDict):
    """A model of the backend, as `GET /v1/models` lists it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Usage(NamedTuple):
    """The tokens of one or more turns."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both."""
        return Usage(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class CallPart(NamedTuple):
    """A part of a function call. `place` is the call's index in its turn; a part without `id` continues its call."""

    place: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Delta(NamedTuple):
    """A part of an answer, or all of it. `finish` is the finish reason, once the model has stopped."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[CallPart, ...] = ()
    finish: str | None = None
    usage: Usage | None = None
    logprobs: tuple[object, ...] = ()


class Backend(Protocol):
    """A server of models, shared by all requests."""

    @property
    def default_model(self) -> str | None:
        """The model for requests without one."""
        ...

    def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """Run one turn and yield its answer: in parts with `stream`, otherwise in one. The caller closes the generator.

        Raises `BackendFailed`. Before the first part, it retries errors that may be temporary.
        """
        ...

    async def models(self) -> list[ModelAnswer]:
        """Return the models that the server lists; only the default model if it lists none. Raises `BackendFailed`."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
