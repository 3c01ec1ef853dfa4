"""Everything in a call's arguments that a pattern can look at, as texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import cast


def texts(value: object) -> Iterator[str]:
    """Every scalar of a JSON value and every key: text as it is, anything else as its JSON."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, object]", value).items():
            yield key
            yield from texts(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from texts(item)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def selected(arguments: Mapping[str, object], place: str) -> Iterator[object]:
    """The argument of this name, or, where the place begins with `/`, what the JSON pointer points to.

    Nothing where there is no such thing.
    """
    value: object = arguments
    for step in _steps(place):
        inside = _inside(value)
        if step not in inside:
            return
        value = inside[step]
    yield value


def _inside(value: object) -> Mapping[str, object]:
    """What a value holds, by the steps that a pointer names it with."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value)
    items = cast("list[object]", value) if isinstance(value, list) else ()
    return {str(place): item for place, item in enumerate(items)}


def _steps(place: str) -> list[str]:
    if not place.startswith("/"):
        return [place]
    return [step.replace("~1", "/").replace("~0", "~") for step in place[1:].split("/")]
