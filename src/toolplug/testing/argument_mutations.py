"""Wrong arguments, made from right ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, cast

from toolplug.catalog.schema import Schema
from toolplug.providers.json_object import as_object

_WRONG: tuple[object, ...] = ({"wrong": [True]}, ["wrong"], "something wrong", -0.5, True, None)
_EXTRA = "not_an_argument"


class Mutation(NamedTuple):
    """Arguments that a tool must refuse, and what is wrong with them."""

    what: str
    arguments: Mapping[str, object]


def mutations(schema: Schema, example: Mapping[str, object]) -> Iterator[Mutation]:
    """One required argument left out, one argument of a type that the schema refuses, one that the tool lacks.

    A schema that says of further arguments what they are, or that says nothing of an argument, is taken at its word.
    """
    described = schema.value
    required = cast("Collection[str]", described.get("required", ()))  # the schema has compiled
    for name in required:
        if name in example:
            yield Mutation(f"without {name!r}", {key: value for key, value in example.items() if key != name})
    known = as_object(described.get("properties"))
    for name in example:
        if name in known:
            wrong = (Mutation(f"with {name!r} as {value!r}", {**example, name: value}) for value in _WRONG)
            yield from [item for item in wrong if schema.refusals(item.arguments)][:1]
    if "additionalProperties" not in described or described["additionalProperties"] is False:
        yield Mutation(f"with an argument {_EXTRA!r} that it does not have", {**example, _EXTRA: 1})
