"""Looks up in pydantic models what a path leads to: annotations, known keys, and secrets."""

from __future__ import annotations

import collections.abc
from collections.abc import Collection, Iterable, Iterator
from types import UnionType
from typing import Annotated, TypeAlias, Union, get_args, get_origin

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, Secret, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

Shapes: TypeAlias = tuple[object, ...]
"""The possible annotations of a value: one, or the members of a union."""


def shapes_of(annotation: object) -> Shapes:
    """Return the annotation, or its members if it is a union; `Annotated`, root models and aliases are resolved."""
    return tuple(_members(annotation))


def shapes_at(shapes: Shapes, part: str | int) -> Shapes:
    """Return the possible annotations at a key or an index of a value; empty if they are unknown."""
    return tuple(member for shape in shapes for inner in _inner(shape, part) for member in _members(inner))


def models_in(shapes: Shapes) -> tuple[type[BaseModel], ...]:
    """Return the models among the shapes."""
    return tuple(shape for shape in shapes if isinstance(shape, type) and issubclass(shape, BaseModel))


def known_keys(models: Iterable[type[BaseModel]]) -> tuple[str, ...]:
    """Return every key of the models, aliases included, in the models' order."""
    fields = ((model, name, field) for model in models for name, field in model.model_fields.items())
    return tuple(dict.fromkeys(key for item in fields for key in field_keys(*item)))


def field_keys(model: type[BaseModel], name: str, field: FieldInfo) -> Iterator[str]:
    """Yield the keys of a field: its aliases, and its name if the model accepts that."""
    alias = field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    for choice in choices:
        first = choice.path[0] if isinstance(choice, AliasPath) else choice
        if isinstance(first, str):
            yield first
    by_name = model.model_config.get("validate_by_name") or model.model_config.get("populate_by_name")
    if alias is None or by_name:
        yield name


def goes_by(model: type[BaseModel], tags: Collection[str]) -> bool:
    """Return whether pydantic identifies this member of a union by one of the tags: its name, or a literal in it."""
    literals = (get_args(shape) for field in model.model_fields.values() for shape in shapes_of(field.annotation))
    return model.__name__ in tags or any(literal in tags for values in literals for literal in values)


def is_secret(shapes: Shapes) -> bool:
    """Return whether one of the shapes is a secret type of pydantic."""
    return any(
        get_origin(shape) is Secret or (isinstance(shape, type) and issubclass(shape, SecretStr | SecretBytes | Secret))
        for shape in shapes
    )


def _members(annotation: object) -> Iterator[object]:
    # A `type` alias, or `TypeAliasType`: its value is evaluated when it is first read.
    named = getattr(annotation, "__value__", None)
    if named is not None:
        yield from _members(named)
    elif get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, UnionType}:
        for member in get_args(annotation):
            yield from _members(member)
    elif isinstance(annotation, type) and issubclass(annotation, RootModel):
        yield from _members(annotation.model_fields["root"].annotation)
    else:
        yield annotation


def _inner(shape: object, part: str | int) -> Iterator[object]:
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        yield from (
            field.annotation
            for name, field in shape.model_fields.items()
            if part in tuple(field_keys(shape, name, field))
        )
        return
    origin, arguments = get_origin(shape), get_args(shape)
    if not isinstance(origin, type) or not arguments:
        return
    if issubclass(origin, collections.abc.Mapping):
        yield arguments[-1]
    elif issubclass(origin, tuple) and arguments[-1] is not Ellipsis:
        yield from arguments[part : part + 1] if isinstance(part, int) else ()
    elif issubclass(origin, collections.abc.Iterable):
        yield arguments[0]
