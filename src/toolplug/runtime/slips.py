"""Slips of who calls toolplug, said in words: another event loop, `with` for `async with`, options of another name.

Python up to 3.12 reports the last two without the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import FunctionType
from typing import Any, NoReturn, TypeVar, cast

Kind = TypeVar("Kind", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])


def check_event_loop() -> None:
    """Raise `RuntimeError` where no asyncio loop runs, as under trio."""
    try:
        # Authors of providers import this module: they do not need asyncio before a host does.
        import_module("asyncio").get_running_loop()
    except RuntimeError:
        message = "toolplug runs on asyncio only; start the application on an asyncio loop (anyio: backend='asyncio')"
        raise RuntimeError(message) from None


def require_async_with(kind: Kind) -> Kind:
    """Have `with` on an instance raise `TypeError` in words; type checkers refuse it as before."""

    def refuse(self: object, *_: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is entered with `async with`, in an `async def`; `with` cannot wait")

    # Not in the body of the class: a type checker would then allow `with`.
    for name in ("__enter__", "__exit__"):
        setattr(kind, name, refuse)
    return kind


def suggest_options(function: Function) -> Function:
    """Have an unknown option raise `TypeError` with the nearest one that there is."""
    code = cast("FunctionType", function).__code__
    known = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]

    @wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        for name in options:
            if name not in known:
                title = function.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{title} has no option {name!r}; {_hint(name, known)}")
        return function(*given, **options)

    return cast("Function", call)


def _hint(name: str, known: tuple[str, ...]) -> str:
    options = [each for each in known if each != "self"]
    # Without underscores: `readonly` is meant for `read_only`, and `pluginType` for `plugin_type`.
    folded = {each.replace("_", ""): each for each in options}
    near = import_module("difflib").get_close_matches(name.replace("_", "").lower(), folded, 1)
    return f"nearest: {folded[near[0]]!r}" if near else f"it has {', '.join(options)}"
