"""One route of the host itself: where, for whom, what it does, and how it is described."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from pydantic import BaseModel

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange

Handler = Callable[[Host, Exchange], Awaitable[None]]
"""Answers through the exchange, or raises `HttpProblem`."""

Answers = Mapping[int, type[BaseModel] | None]

_NO_ANSWERS: Answers = MappingProxyType({})


class Parameter(NamedTuple):
    """One parameter of a request beside its body."""

    name: str
    description: str
    choices: tuple[str, ...] = ()
    required: bool = False
    place: Literal["query", "header"] = "query"


class OwnRoute(NamedTuple):
    """`scope` None: open to anybody. `path` may hold `{name}` parameters, which are whole segments.

    `answer` is the body of 200, None where it is not JSON; `others` are answers with another status that are no
    errors of the usual shape; `errors` are statuses of errors that are worth a mention.
    """

    method: str
    path: str
    scope: str | None
    handler: Handler
    summary: str
    answer: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    parameters: tuple[Parameter, ...] = ()
    others: Answers = _NO_ANSWERS
    errors: tuple[int, ...] = ()
    content_types: tuple[str, ...] = ("application/json",)
