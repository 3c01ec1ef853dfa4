"""The items of a large body, counted before pydantic sees them: it reports every one that is wrong, 5 µs each.

60,000 unknown keys, or as many texts in a list of numbers, hold the loop for 0.1 to 0.6 s, only to name the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from annotated_types import MaxLen
from pydantic import BaseModel

from toolplug.config.model_shape import Shapes, field_keys, known_keys, models_in, shapes_at

Place = tuple[int | str, ...]
"""Where a part of a body is, as pydantic's `loc` has it."""


class TooMany(NamedTuple):
    """A list or mapping with more items than its field may have."""

    at: Place
    most: int


class UnknownKey(NamedTuple):
    """A key that the model there does not have."""

    at: Place


def fault_in(value: object, shapes: Shapes, at: Place = ()) -> TooMany | UnknownKey | None:
    """Return the first list or mapping of a body with too many items, or the first unknown key; None without one."""
    if isinstance(value, dict):
        return _fault_in_object(cast("dict[str, object]", value), shapes, at)
    if isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            inner = shapes_at(shapes, index)
            if not models_in(inner):
                break  # what is no model is not looked at by pydantic, or is of one type
            fault = fault_in(item, inner, (*at, index))
            if fault is not None:
                return fault
    return None


def _fault_in_object(value: dict[str, object], shapes: Shapes, at: Place) -> TooMany | UnknownKey | None:
    models = models_in(shapes)
    if not models:
        return None
    known = frozenset(known_keys(models))
    unknown = next((key for key in value if key not in known), None)
    if unknown is not None and all(model.model_config.get("extra") == "forbid" for model in models):
        return UnknownKey((*at, unknown))
    for key in known & value.keys():
        item = value[key]
        if not isinstance(item, dict | list):
            continue
        most = min(_most_items(models, key), default=None)
        if most is not None and len(cast("list[object]", item)) > most:
            return TooMany((*at, key), most)
        fault = fault_in(cast("object", item), shapes_at(shapes, key), (*at, key))
        if fault is not None:
            return fault
    return None


def _most_items(models: tuple[type[BaseModel], ...], key: str) -> Iterator[int]:
    for model in models:
        for name, field in model.model_fields.items():
            if key in field_keys(model, name, field):
                yield from (limit.max_length for limit in field.metadata if isinstance(limit, MaxLen))
