"""Conversion of arguments that are valid by their schema to the types of a method's parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from toolplug.catalog.schema_walk import pointer_part
from toolplug.config.masking import mask_secrets
from toolplug.config.wording import own_text
from toolplug.errors import InvalidArguments

Arguments = Mapping[str, object]
Convert = Callable[[Arguments], Arguments]

MAX_REPORTED = 20
MAX_MASKED = 1_000
"""If a refused value has more parts than this, the author's message is left out instead of searched for them."""


def whole_numbers(names: Sequence[str]) -> Convert:
    """Return a conversion that makes 1.0 an `int` for these parameters; other arguments stay the same object."""

    def convert(arguments: Arguments) -> Arguments:
        for name in names:
            if type(arguments.get(name)) is float:
                return {
                    key: int(value) if key in names and isinstance(value, float) else value
                    for key, value in arguments.items()
                }
        return arguments

    return convert


def through_model(model: type[BaseModel], parameters: Mapping[str, str], filled: Set[str]) -> Convert:
    """Return a conversion by the model; `parameters` maps its fields to the parameters of the method.

    An argument that was not given is left out, so that the method's default applies, except the `filled` parameters,
    whose default only the model knows. The conversion raises `InvalidArguments`.
    """

    def convert(arguments: Arguments) -> Arguments:
        try:
            made = model.model_validate(arguments)
        except ValidationError as error:
            raise InvalidArguments(tuple(_lines(error, arguments))) from None
        # `__dict__`, not `model_dump`: the method is to get the models themselves.
        values, given = made.__dict__, made.model_fields_set
        named = ((parameters[field], field in given, value) for field, value in values.items())
        return {name: value for name, was_given, value in named if was_given or name in filled}

    return convert


def _lines(error: ValidationError, arguments: Arguments) -> Iterator[str]:
    """Yield `/pointer: message` for each of the first 20 errors, without the values of the arguments."""
    for detail in error.errors(include_url=False)[:MAX_REPORTED]:
        # A message of the author's validator may quote the value, and errors must not repeat arguments.
        texts = list(islice(_texts(detail["input"]), MAX_MASKED + 1))
        message = mask_secrets(own_text(detail), texts) if len(texts) <= MAX_MASKED else "is refused"
        yield f"{_pointer(detail, arguments)}: {message}"


def _pointer(error: ErrorDetails, arguments: object) -> str:
    """Return the JSON pointer of an error; the types in pydantic's location are left out."""
    pointer, value = "", arguments
    for part in error["loc"]:
        # Pydantic's location also has the names of types and union members, which are at no place of the value.
        if isinstance(value, Mapping) and part in value:
            value = cast("Mapping[object, object]", value)[part]
        elif isinstance(value, list) and isinstance(part, int):
            value = cast("list[object]", value)[part]
        elif not (error["type"] == "missing" and part == error["loc"][-1]):
            continue
        pointer += pointer_part(part)
    return pointer or "/"


def _texts(value: object) -> Iterator[str]:
    """Yield every text and number in a value of any depth, as text."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, str | int | float):
            yield str(node)
        elif isinstance(node, Mapping):
            pairs = cast("Mapping[object, object]", node)
            stack += [*pairs.keys(), *pairs.values()]
        elif isinstance(node, list | tuple):
            stack += cast("Sequence[object]", node)
