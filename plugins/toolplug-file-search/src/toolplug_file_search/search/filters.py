"""Attribute filters in OpenAI's shape, as conditions on the files of vector stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

Scalar = str | bool | int | float

_OPERATORS = {"eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_DEPTH = 8


class Comparison(BaseModel):
    """An attribute compared with a value; `ne` also holds where there is no such attribute."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte"]
    key: Annotated[str, Field(max_length=64)]
    value: Scalar


class Membership(BaseModel):
    """An attribute that is one of these values, or (`nin`) none of them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["in", "nin"]
    key: Annotated[str, Field(max_length=64)]
    value: Annotated[list[Scalar], Field(max_length=100)]


class Compound(BaseModel):
    """Filters that all hold, or one of which does."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["and", "or"]
    filters: Annotated[list[Comparison | Membership | Compound], Field(min_length=1, max_length=20)]


Filter = Annotated[Comparison | Membership | Compound, Field(discriminator="type")]
"""What `filters` may be."""


class Condition(NamedTuple):
    """An SQL expression on `members.attributes`, and its values."""

    sql: str
    values: Sequence[object]


ALL = Condition("true", ())
"""The filter that every file passes."""


def condition(wanted: Comparison | Membership | Compound, depth: int = 0) -> Condition:
    """Return the condition of a filter. Raises `ValueError` where filters are nested too deeply."""
    if depth >= _DEPTH:
        raise ValueError(f"filters are nested deeper than {_DEPTH} levels")
    if isinstance(wanted, Compound):
        inner = [condition(each, depth + 1) for each in wanted.filters]
        joined = f" {wanted.type.upper()} ".join(f"({each.sql})" for each in inner)
        return Condition(joined, [value for each in inner for value in each.values])
    if isinstance(wanted, Membership):
        each = [_compared("=", wanted.key, value) for value in wanted.value]
        any_of = " OR ".join(item.sql for item in each) or "false"
        return Condition(
            any_of if wanted.type == "in" else f"NOT ({any_of})", [value for item in each for value in item.values]
        )
    if wanted.type == "ne":
        equal = _compared("=", wanted.key, wanted.value)
        return Condition(f"NOT {equal.sql}", equal.values)
    return _compared(_OPERATORS[wanted.type], wanted.key, wanted.value)


def _compared(operator: str, key: str, value: Scalar) -> Condition:
    """Values of different kinds are neither equal nor ordered."""
    kinds = (
        "'true', 'false'" if isinstance(value, bool) else "'text'" if isinstance(value, str) else "'integer', 'real'"
    )
    exists = f"EXISTS (SELECT 1 FROM json_each(members.attributes) AS a WHERE a.key = ? AND a.type IN ({kinds})"
    return Condition(f"{exists} AND a.value {operator} ?)", [key, value])
