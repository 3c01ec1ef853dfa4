"""A function as it stands in a class, found without running any descriptor."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple, cast

from toolplug.signatures.unread import unread_signature


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
        signature = unread_signature(self.function)
        try:
            if by_name:
                signature.bind(*first, **dict.fromkeys(arguments))
            else:
                signature.bind(*first, *arguments)
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
