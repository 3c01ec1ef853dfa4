"""Annotations, resolved in the scope where a function or its class is defined, and functions as class attributes.

A name is looked up in the class body, the enclosing classes and function, the module, and the built-in names.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from types import FrameType, FunctionType, SimpleNamespace
from typing import NamedTuple, cast, get_type_hints

from toolplug.catalog.call import CallContext
from toolplug.errors import InvalidDefinition

if sys.version_info >= (3, 14):
    from annotationlib import Format

    unread_signature = partial(signature, annotation_format=Format.FORWARDREF)
else:
    unread_signature = signature
"""Reads a signature whose annotations may name what is defined later, or only for type checkers, as forward
references. Such an annotation is text (`from __future__ import annotations`), or since Python 3.14 code that raises."""


class ClassFunction(NamedTuple):
    """A function of a class; a `bound` one gets the instance or the class as its first argument."""

    function: Callable[..., object]
    bound: bool

    @property
    def is_async(self) -> bool:
        """True if a call returns a coroutine; the function inside of `functools.wraps` decides."""
        return inspect.iscoroutinefunction(inspect.unwrap(self.function))

    def takes(self, *arguments: str) -> bool:
        """Return True if it can be called on an instance with these arguments, in this order."""
        try:
            unread_signature(self.function).bind(*(("self",) if self.bound else ()), *arguments)
        except TypeError:
            return False
        return True


def class_function(found: object) -> ClassFunction | None:
    """Return a function, static method or class method of a class; None for any other attribute.

    A static method may also hold the bound method of another object.
    """
    if isinstance(found, staticmethod | classmethod):
        wrapper = cast("staticmethod[..., object]", found)
        inner: object = wrapper.__func__
        return (
            ClassFunction(inner, isinstance(found, classmethod))
            if inspect.isfunction(inner) or inspect.ismethod(inner)
            else None
        )
    return ClassFunction(found, True) if inspect.isfunction(found) else None


Names = Mapping[str, object]

_MAKING_CLASSES = frozenset({"__init_subclass__", "__new__"})
_FALLBACK: Names = {"CallContext": CallContext}
"""Names that authors often import for the type checker only."""


class Unresolved(Exception):
    """An annotation cannot be resolved; the text says why."""


class UnresolvedAnnotation(InvalidDefinition):
    """An annotation cannot be resolved yet: the name may be defined later in the module."""


def names_around(frame: FrameType | None) -> Names:
    """Return the local names around a class or function, from the frame of the code that defines it.

    Empty at the level of a module, whose names may be defined later.
    """
    # The frames of a metaclass or of `__init_subclass__` are between us and the class statement.
    while frame is not None and frame.f_code.co_name in _MAKING_CLASSES:
        frame = frame.f_back
    found: dict[str, object] = {}
    while frame is not None and frame.f_locals is not frame.f_globals:
        found = {**frame.f_locals, **found}
        # A function: its own locals are complete with those of closures that it uses. A class body goes on to what is
        # around it.
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            break
        frame = frame.f_back
    return found


def resolve_annotation(
    annotation: object, function: Callable[..., object], owner: type | None, around: Names
) -> object:
    """Return the type that an annotation of a function, or of a method of `owner`, means. Raises `Unresolved`."""
    # `get_type_hints` would resolve all annotations of the function, and fail for one that nobody asked for.
    holder = SimpleNamespace(__annotations__={"it": annotation})
    module = sys.modules.get(function.__module__ if owner is None else owner.__module__)
    own = getattr(inspect.unwrap(function), "__globals__", vars(module) if module else {})
    local = {**around, **(_types_of(owner) if owner is not None else {})}
    try:
        return get_type_hints(holder, {**_FALLBACK, **own}, local, include_extras=True)["it"]
    except Exception as error:  # an annotation is any expression
        raise Unresolved(f"{type(error).__name__}: {error}") from error


def _types_of(owner: type) -> Names:
    """Return the names in class bodies without methods, so that a tool called `list` does not hide `list[str]`."""
    found: dict[str, object] = {owner.__name__: owner}
    for kind in reversed(owner.__mro__):
        found |= {
            name: value
            for name, value in vars(kind).items()
            if not isinstance(value, FunctionType | staticmethod | classmethod | property) and not name.startswith("__")
        }
    return found
