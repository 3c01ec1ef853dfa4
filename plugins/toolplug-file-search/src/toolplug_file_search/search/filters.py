"""Attribute filters in OpenAI's shape, as conditions on the files of vector stores."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

Key = Annotated[str, Field(max_length=64)]
Scalar = Annotated[str, Field(max_length=512)] | bool | int | float

MAX_COMPARISONS = 100
"""Values that a filter compares with in all, on all its levels."""
MAX_DEPTH = 8
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
)


class Comparison(BaseModel):
    """An attribute compared with a value; `ne` also holds where there is no such attribute."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte"]
    key: Key
    value: Scalar

    def matches(self, attributes: Mapping[str, object]) -> bool:
        """Return whether these attributes pass."""
        if self.type in ("eq", "ne"):
            return _equal(attributes, self.key, self.value) is (self.type == "eq")
        if self.key not in attributes or _kind(attributes[self.key]) != _kind(self.value):
            return False
        return _OPERATORS[self.type](attributes[self.key], self.value)


class Membership(BaseModel):
    """An attribute that is one of these values, or (`nin`) none of them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["in", "nin"]
    key: Key
    value: Annotated[list[Scalar], Field(max_length=MAX_COMPARISONS)]

    def matches(self, attributes: Mapping[str, object]) -> bool:
        """Return whether these attributes pass."""
        return any(_equal(attributes, self.key, value) for value in self.value) is (self.type == "in")


class Compound(BaseModel):
    """Filters that all hold, or one of which does."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["and", "or"]
    filters: Annotated[
        list[Annotated[Comparison | Membership | Compound, Field(discriminator="type")]],
        Field(min_length=1, max_length=20),
    ]

    def matches(self, attributes: Mapping[str, object]) -> bool:
        """Return whether these attributes pass."""
        found = (each.matches(attributes) for each in self.filters)
        return all(found) if self.type == "and" else any(found)


def _check_size(given: object) -> object:
    """Count what a filter compares with before it is read."""
    waiting, comparisons = [(given, 1)], 0
    while waiting:
        each, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise PydanticCustomError("filters", "filters are nested deeper than {most} levels", {"most": MAX_DEPTH})
        fields = cast("dict[str, object]", each) if isinstance(each, dict) else {}
        inner, values = fields.get("filters"), fields.get("value")
        if isinstance(inner, list):
            waiting += [(item, depth + 1) for item in cast("list[object]", inner)[: MAX_COMPARISONS + 1]]
        else:
            comparisons += len(cast("list[object]", values)) if isinstance(values, list) else 1
        if comparisons + len(waiting) > MAX_COMPARISONS:
            message = "filters compare with more than {most} values in all"
            raise PydanticCustomError("filters", message, {"most": MAX_COMPARISONS})
    return given


Filter = Annotated[
    Annotated[Comparison | Membership | Compound, Field(discriminator="type")], BeforeValidator(_check_size)
]
"""What `filters` may be."""


def _equal(attributes: Mapping[str, object], key: str, value: object) -> bool:
    return key in attributes and _kind(attributes[key]) == _kind(value) and attributes[key] == value


def _kind(value: object) -> str:
    """Values of different kinds are neither equal nor ordered."""
    return "truth" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
