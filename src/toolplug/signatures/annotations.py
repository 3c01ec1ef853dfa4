"""Resolving annotations in the scope where a function or its class is made, and functions as attributes of a class.

names of the class body, then of the classes and the function around it, then of the module, then built-in ones
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
"""Reads a signature whose annotations may name what is defined later, or for a type checker alone, as forward
references. Such an annotation is text (`from __future__ import annotations`), or since Python 3.14 code that raises."""


class ClassFunction(NamedTuple):
    """`bound`: called on an instance, it gets the instance or the class as its first argument."""

    function: Callable[..., object]
    bound: bool

    @property
    def is_async(self) -> bool:
        """Does a call give a coroutine; what `functools.wraps` wraps decides."""
        return inspect.iscoroutinefunction(inspect.unwrap(self.function))

    def takes(self, *arguments: str, by_name: bool = False) -> bool:
        """Can it be called on an instance with these arguments, in this order or by these names."""
        first = ("self",) if self.bound else ()
        parameters = unread_signature(self.function)
        try:
            if by_name:
                parameters.bind(*first, **dict.fromkeys(arguments))
            else:
                parameters.bind(*first, *arguments)
        except TypeError:
            return False
        return True


def class_function(found: object) -> ClassFunction | None:
    """What an attribute of a class is as a function; None for anything else."""
    if isinstance(found, staticmethod | classmethod):
        wrapper = cast("staticmethod[..., object]", found)
        inner: object = wrapper.__func__
        return ClassFunction(inner, isinstance(found, classmethod)) if inspect.isfunction(inner) else None
    return ClassFunction(found, True) if inspect.isfunction(found) else None


Names = Mapping[str, object]

_MAKING_CLASSES = frozenset({"__init_subclass__", "__new__"})
_FALLBACK: Names = {"CallContext": CallContext}
"""Authors import it for the type checker alone; their meaning is certain."""


class Unresolved(Exception):
    """An annotation that means nothing here; the text says why."""


class UnresolvedAnnotation(InvalidDefinition):
    """An annotation that means nothing (yet): what it names may be defined later in the module."""


def names_around(frame: FrameType | None) -> Names:
    """The local names around a class or function, from the frame of what is called when it is made.

    Empty for one of a module, whose names may still come later.
    """
    while frame is not None and frame.f_code.co_name in _MAKING_CLASSES:
        frame = frame.f_back
    found: dict[str, object] = {}
    while frame is not None and frame.f_locals is not frame.f_globals:
        found = {**frame.f_locals, **found}
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            break
        frame = frame.f_back
    return found


def resolved(annotation: object, function: Callable[..., object], owner: type | None, around: Names) -> object:
    """What an annotation of a function means, which is a method of `owner` where there is one. Raises `Unresolved`."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    module = sys.modules.get(function.__module__ if owner is None else owner.__module__)
    own = getattr(inspect.unwrap(function), "__globals__", vars(module) if module else {})
    local = {**around, **(_types_of(owner) if owner is not None else {})}
    try:
        return get_type_hints(holder, {**_FALLBACK, **own}, local, include_extras=True)["it"]
    except Exception as error:  # an annotation is any expression
        raise Unresolved(f"{type(error).__name__}: {error}") from error


def _types_of(owner: type) -> Names:
    """What class bodies define beside methods: a tool called `list` does not stand in the way of `list[str]`."""
    found: dict[str, object] = {owner.__name__: owner}
    for kind in reversed(owner.__mro__):
        found |= {
            name: value
            for name, value in vars(kind).items()
            if not isinstance(value, FunctionType | staticmethod | classmethod | property) and not name.startswith("__")
        }
    return found
