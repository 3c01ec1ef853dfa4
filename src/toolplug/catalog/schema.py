"""JSON Schemas as their author's bytes, with validators that are compiled on the first call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import NoneType
from typing import NoReturn, Protocol, cast

import jsonschema_rs
import orjson

from toolplug.catalog.schema_references import References
from toolplug.errors import InvalidDefinition

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_SCHEMA_NODES = 2_000
MAX_REPORTED = 20
MAX_EXPLAINED_DEPTH = 64
MAX_EXPLAINED_STEPS = 20_000
KEPT_VALIDATORS = 1_024

# References and `$schema` may lead elsewhere, and a pattern is more than its JSON type.
_NEEDS_COMPILING = re.compile(rb'"(?:\$|pattern)')
_LEAVES = (str, int, float, NoneType)
_SCALAR_TYPES = frozenset({"string", "integer", "number", "boolean", "null"})


class Validator(Protocol):
    """The part of a compiled JSON Schema that is used."""

    def is_valid(self, instance: object) -> bool: ...


class Schema:
    """One JSON Schema. Equal text is equal; the validator is shared by text and bounded in number.

    Raises `InvalidDefinition` for what is not JSON, not an object, or past the limits of a definition
    (64 KiB, depth 32, 2,000 nodes, 10,000 expanded references).
    """

    __slots__ = ("text",)

    text: bytes

    def __init__(self, value: Mapping[str, object]) -> None:
        _bounded(value)
        try:
            text = orjson.dumps(value if isinstance(value, dict) else dict(value))
        except (TypeError, orjson.JSONEncodeError) as error:
            raise InvalidDefinition(f"the schema is not JSON: {error}") from None
        if len(text) > MAX_SCHEMA_BYTES:
            raise InvalidDefinition(f"the schema has {len(text)} bytes, {MAX_SCHEMA_BYTES} are allowed")
        if b'"$' in text:
            References(orjson.loads(text))
        # A copy: the encoder's own bytes keep the room that they were written in, some kilobytes each.
        self.text = bytes(memoryview(text))

    @property
    def value(self) -> dict[str, object]:
        """A fresh copy of the schema as Python objects."""
        return orjson.loads(self.text)

    @property
    def only_scalars(self) -> bool:
        """Does it admit objects of texts, numbers, booleans and null only, so that a shallow copy shares nothing."""
        schema = self.value
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False and isinstance(properties, dict)
        return closed and all(_admits_one_scalar(item) for item in cast("dict[str, object]", properties).values())

    def check(self) -> None:
        """Raise `InvalidDefinition` when the text is no valid JSON Schema; compiles it only where that must tell."""
        if not _NEEDS_COMPILING.search(self.text) and jsonschema_rs.meta.is_valid(self.value):
            return
        compiled(self.text)

    def validator(self) -> Validator:
        """The compiled validator; raises `InvalidDefinition` when the text is no valid JSON Schema."""
        return compiled(self.text)

    def refusals(self, instance: object) -> tuple[str, ...]:
        """Why the instance is not valid: at most 20 lines `/pointer: message`, values masked; empty when it is.

        The validator finds every reason before it gives the first. Where that would hold up the loop (a large value, or
        one that goes deep into a schema whose recursion branches) the one line says only that it is not valid.
        """
        validator = compiled(self.text)
        try:
            if not _explains(self.text, instance):
                return () if validator.is_valid(instance) else ("/: not valid, and too large to say where",)
            return tuple(_first_lines(validator.iter_errors(instance)))
        except (TypeError, ValueError) as error:
            return (f"/: not JSON: {error}",)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Schema({self.text.decode()})"


def _admits_one_scalar(schema: object) -> bool:
    return isinstance(schema, dict) and cast("dict[str, object]", schema).get("type") in _SCALAR_TYPES


@lru_cache(maxsize=KEPT_VALIDATORS)
def compiled(text: bytes) -> jsonschema_rs.Validator:
    """The validator of one schema text: linear-time patterns, and remote references refused, not fetched."""
    try:
        return jsonschema_rs.validator_for(
            text.decode(), retriever=_refuse, mask="[value]", pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidDefinition(f"not a valid JSON Schema: {_one_line(error)}") from None


@lru_cache(maxsize=KEPT_VALIDATORS)
def _references(text: bytes) -> References:
    return References(orjson.loads(text))


def _explains(text: bytes, instance: object) -> bool:
    """Can every reason be found in a moment: at most so many times is one schema applied to one node of the value."""
    nodes = depth = 0
    for depth, level in enumerate(_levels(instance)):
        nodes += len(level)
        if nodes > MAX_EXPLAINED_STEPS or depth > MAX_EXPLAINED_DEPTH:
            return False
    return nodes * _references(text).applied_to(depth, MAX_EXPLAINED_STEPS) <= MAX_EXPLAINED_STEPS


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"the remote reference {uri!r} is not fetched; put the schema under $defs")


def _first_lines(errors: Iterator[jsonschema_rs.ValidationError]) -> Iterator[str]:
    for count, error in enumerate(errors):
        if count == MAX_REPORTED:
            return
        pointer = "".join(f"/{_escaped(part)}" for part in error.instance_path)
        yield f"{pointer or '/'}: {error.message}"


def _escaped(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _one_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _bounded(value: object) -> None:
    """Refuse a schema that is too deep or has too many nodes, cycles included, before anything walks it again."""
    nodes = 0
    for depth, level in enumerate(_levels(value)):
        nodes += len(level)
        if nodes > MAX_SCHEMA_NODES:
            raise InvalidDefinition(f"the schema has more than {MAX_SCHEMA_NODES} nodes")
        if depth > MAX_SCHEMA_DEPTH:
            raise InvalidDefinition(f"the schema is more than {MAX_SCHEMA_DEPTH} levels deep")


def _levels(value: object) -> Iterator[list[object]]:
    """The nodes of a JSON value level by level, without end where it holds itself."""
    level = [value]
    while level:
        yield level
        below: list[object] = []
        for node in level:
            if isinstance(node, _LEAVES):
                continue
            if isinstance(node, Mapping):
                below.extend(node.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
            elif isinstance(node, list | tuple):
                below.extend(node)  # pyright: ignore[reportUnknownArgumentType]
        level = below
