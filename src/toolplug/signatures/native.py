"""Which parameters take their arguments as JSON gives them, so that a call needs no conversion."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen, MultipleOf
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_SCALARS: frozenset[object] = frozenset({str, bool, float, type(None), Any, object})
_CONTAINERS: frozenset[object] = frozenset({list, dict, Sequence, Mapping})
_UNIONS: frozenset[object] = frozenset({Union, types.UnionType})
_CONSTRAINTS = (Ge, Gt, Le, Lt, MaxLen, MinLen, MultipleOf)


def is_native(annotation: object) -> bool:
    """Is every value that the schema admits one that the parameter takes as it is.

    `float` takes a whole number too. `int` is not native: JSON Schema counts 1.0 among the integers.
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_native(parts[0]) and all(map(_only_constrains, parts[1:]))
    if origin is Literal:
        return all(isinstance(part, str | bool | None) for part in parts)
    if origin in _UNIONS or origin in _CONTAINERS:
        return all(map(is_native, parts))
    return annotation in _SCALARS or annotation in _CONTAINERS


def is_whole(annotation: object) -> bool:
    """Is a number that the schema admits always meant as an `int`, and everything else native."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_whole(parts[0]) and all(map(_only_constrains, parts[1:]))
    if origin in _UNIONS:
        return int in parts and all(part in (int, str, type(None)) for part in parts)
    return annotation is int


def _only_constrains(metadata: object) -> bool:
    """Does the schema say all that this metadata of `Annotated` does."""
    if isinstance(metadata, FieldInfo):
        named = metadata.alias is None and metadata.validation_alias is None
        given = metadata.default is not PydanticUndefined or metadata.default_factory is not None
        return named and not given and all(map(_only_constrains, metadata.metadata))
    return isinstance(metadata, _CONSTRAINTS)
