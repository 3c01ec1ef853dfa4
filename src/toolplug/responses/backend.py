"""What the loop needs of a model: answers to Chat Completions requests, piece by piece."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Literal, NamedTuple, Protocol

from typing_extensions import TypedDict

Question = Mapping[str, object]
"""The body of a Chat Completions request without `stream`."""


class ModelAnswer(TypedDict):
    """One model of the model's server."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Usage(NamedTuple):
    """Tokens of one turn, or of several."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both."""
        return Usage(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class CallPart(NamedTuple):
    """A piece of a call. `place` tells the calls of one turn apart; a piece without `id` goes on with its call."""

    place: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Delta(NamedTuple):
    """A piece of an answer, or the whole. `finish` is why the model stopped, once it has."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[CallPart, ...] = ()
    finish: str | None = None
    usage: Usage | None = None
    logprobs: tuple[object, ...] = ()


class Backend(Protocol):
    """A server of models. One instance for all requests."""

    @property
    def default_model(self) -> str | None:
        """The model for requests that name none."""
        ...

    def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """One turn. `stream`: as it is written; otherwise it comes whole. To be closed by whoever reads it.

        Raises `BackendFailed`; tries again by itself while nothing has come, where that may help.
        """
        ...

    async def models(self) -> list[ModelAnswer]:
        """The models that it has, as the OpenAI API lists them; the default model alone where it does not list any.

        Raises `BackendFailed`.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
