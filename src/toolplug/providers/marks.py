"""What the decorators leave on a method, and how a class's marked methods are found again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from toolplug.catalog.definition import Hosted, ToolDefinition, ToolHints
from toolplug.errors import InvalidDefinition
from toolplug.signatures.class_function import ClassFunction, class_function
from toolplug.signatures.scope import Names
from toolplug.signatures.signature import Signature

Method = TypeVar("Method", bound=Callable[..., object])
Mark = TypeVar("Mark")

_MARKS = "__toolplug__"


class ToolOptions(NamedTuple):
    """What the author wrote in `@tool(…)`."""

    name: str | None
    description: str | None
    hints: ToolHints
    hosted: Hosted | None
    timeout_s: float | None


class ToolMark:
    """Left by `@tool`. `around` holds the names where the class is made, only until the annotations are read."""

    def __init__(self, options: ToolOptions) -> None:
        self.options = options
        self.around: Names = {}
        self.read: tuple[ToolDefinition, Signature] | None = None


@dataclass(frozen=True, slots=True)
class RouteMark:
    """Left by `@route`."""

    method: str
    path: str
    public: bool
    scope: str | None


class Marked(NamedTuple, Generic[Mark]):
    """One marked method of a class."""

    attribute: str
    method: ClassFunction
    mark: Mark


def with_mark(method: Method, mark: object, decorator: str) -> Method:
    """The same method, with the mark on it. It may be several routes, but one tool: what stands above wins."""
    own = class_function(method)
    if own is None:
        raise InvalidDefinition(f"{decorator} stands above a method, not above {method!r}")
    kept = (other for other in _marks(own) if not isinstance(other, ToolMark) or not isinstance(mark, ToolMark))
    setattr(own.function, _MARKS, (*kept, mark))
    return method


def marked(owner: type, kind: type[Mark]) -> Iterator[Marked[Mark]]:
    """The methods with a mark of this kind, in the order of definition, base classes first.

    What the class has at last under a name counts: an override without the decorator is not marked.
    """
    for attribute in dict.fromkeys(name for base in reversed(owner.__mro__) for name in vars(base)):
        own = class_function(inspect.getattr_static(owner, attribute))
        for mark in _marks(own) if own is not None else ():
            if own is not None and isinstance(mark, kind):
                yield Marked(attribute, own, mark)


def _marks(own: ClassFunction) -> tuple[object, ...]:
    return getattr(own.function, _MARKS, ())
