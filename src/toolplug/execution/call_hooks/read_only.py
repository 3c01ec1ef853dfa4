"""Calls as hooks see them: with read-only arguments, so that no plugin changes what the tool or another plugin gets."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NoReturn, cast

from toolplug.catalog.call import ToolCall, quick_call

_SCALARS = frozenset({str, int, float, bool, type(None)})


class ReadOnlyDict(dict[Any, Any]):
    """A `dict` that raises `TypeError` when it is changed; a copy of it is a plain one, and any encoder takes it."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[object, ...]]:
        return dict, ([*self.items()],)


class ReadOnlyList(list[Any]):
    """A `list` that raises `TypeError` when it is changed; a copy of it is a plain one, and any encoder takes it."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[list[Any]], tuple[object, ...]]:
        return list, ([*self],)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("the arguments of a call are read-only in hooks; copy them, refuse the call, or change its result")


_CHANGES = {
    ReadOnlyDict: ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"),
    ReadOnlyList: (
        *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert", "pop"),
        *("remove", "reverse", "sort"),
    ),
}
for _kind, _names in _CHANGES.items():
    for _name in _names:
        setattr(_kind, _name, _refuse)


def read_only_call(call: ToolCall, *, nested: bool) -> ToolCall:
    """Return the call with read-only arguments: `nested` ones too, where the tool could see a change of those."""
    call_id, name, given = call
    # The check of an abstract class costs as much as the copy, and nearly all arguments are a dict.
    if type(given) is not dict and not isinstance(given, Mapping):
        return call
    arguments = _read_only(dict(given)) if nested else ReadOnlyDict(given)  # pyright: ignore[reportUnknownArgumentType]
    return quick_call(ToolCall, (call_id, name, arguments))


def _read_only(value: object) -> object:
    if type(value) is dict:
        named = cast("dict[object, object]", value).items()
        return ReadOnlyDict({key: item if type(item) in _SCALARS else _read_only(item) for key, item in named})
    if type(value) is list:
        return ReadOnlyList(
            [item if type(item) in _SCALARS else _read_only(item) for item in cast("list[object]", value)]
        )
    try:
        return deepcopy(value)  # what a conversion has made of it: a model, a date
    except Exception:  # noqa: BLE001  code of the value's own class
        return value
