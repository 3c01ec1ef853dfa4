"""The interface of a model's server: answers to Chat Completions requests, in pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Final, Literal, NamedTuple, Protocol

from typing_extensions import TypedDict

from toolplug.catalog.call import EMPTY

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


ENDED: Final = "ended"
"""The finish reason of an answer whose server says that it is over, but not why. Its calls must be complete."""


class CallPart(NamedTuple):
    """A part of a function call, as the server sent it.

    `place` is the call's index in its turn, None where the server gives none. `extra` has the fields that the server
    wants back with the call, those of its function under `function`.
    """

    place: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: Mapping[str, object] = EMPTY


class Delta(NamedTuple):
    """A part of an answer, or all of it. `finish` is the finish reason, once the model has stopped.

    `extra` has the fields of the message that the server wants back; `reasoning_fields` are the names of the fields
    that the reasoning came in, `reasoning_content` if there are none.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[CallPart, ...] = ()
    finish: str | None = None
    usage: Usage | None = None
    logprobs: tuple[object, ...] = ()
    extra: Mapping[str, object] = EMPTY
    reasoning_fields: tuple[str, ...] = ()


class Backend(Protocol):
    """A server of models, shared by all requests."""

    @property
    def default_model(self) -> str | None:
        """The model for requests without one."""
        ...

    def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """Run one turn and yield its answer: in parts with `stream`, otherwise mostly in one. The caller closes it.

        Raises `BackendFailed`. Before the first part, it retries errors that may be temporary.
        """
        ...

    async def models(self) -> list[ModelAnswer]:
        """Return the models that the server lists; only the default model if it lists none. Raises `BackendFailed`."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
