"""One route of the host itself: where, for whom, what it does, and how it is described."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from pydantic import BaseModel

from toolplug.execution.plans import CALL_SCOPE
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange

READ = "tools:read"
CALL = CALL_SCOPE
SESSIONS = "sessions:write"
ADMIN = "admin"
APPROVALS = "approvals:write"
EVERY_SCOPE = frozenset({READ, CALL, SESSIONS, APPROVALS, ADMIN})


class _Shape(NamedTuple):
    """How many segments a path has, and which of them are parameters."""

    length: int
    places: frozenset[int]

    def fixed(self, segments: Sequence[str]) -> tuple[str, ...]:
        """The segments at the other places."""
        return tuple(["" if at in self.places else segment for at, segment in enumerate(segments)])


class _Template(NamedTuple):
    path: str
    names: Mapping[int, str]


class PathTemplates:
    """Templates such as `/a/{b}/c`; where several match, the one whose shape was given first is found."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._shapes: dict[_Shape, dict[tuple[str, ...], _Template]] = {}
        for path in paths:
            segments = path.split("/")
            names = {at: segment[1:-1] for at, segment in enumerate(segments) if segment.startswith("{")}
            shape = _Shape(len(segments), frozenset(names))
            self._shapes.setdefault(shape, {})[shape.fixed(segments)] = _Template(path, names)

    def find(self, path: str) -> tuple[str, Mapping[str, str]] | None:
        """The template of this path, and the parameters in it, none of them empty; None where there is none."""
        segments = path.split("/")
        for shape, templates in self._shapes.items():
            if shape.length == len(segments):
                template = templates.get(shape.fixed(segments))
                if template is not None and all(segments[at] for at in shape.places):
                    return template.path, {name: segments[at] for at, name in template.names.items()}
        return None


Handler = Callable[[Host, Exchange], Awaitable[None]]
"""Answers through the exchange, or raises `HttpProblem`."""

Audience = Literal["callers", "plugin", "either"]
"""Callers with credentials of the host, the plugin of the session in the path by its token, or both."""

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
    """`scope` is what a caller needs; None: a route of callers is open to anybody.

    `path` may hold `{name}` parameters, which are whole segments. `answer` is the body of `status`, None where it is
    not JSON; `others` are answers with another status that are no errors of the usual shape; `errors` are statuses of
    errors that are worth a mention. `max_body`: bytes, where the route takes more than others do. `operation` names it
    in the description, where its handler serves several routes.
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
    status: int = 200
    audience: Audience = "callers"
    max_body: int = 0
    operation: str = ""

    @property
    def is_open(self) -> bool:
        """Is nobody asked who they are."""
        return self.scope is None and self.audience == "callers"
