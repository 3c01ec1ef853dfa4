"""JSON Schemas as their author's bytes, with validators that are compiled on the first call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import cast

import orjson

from toolplug.catalog.schema_references import References
from toolplug.catalog.validation.compiled import (
    TOO_LARGE_TO_VALIDATE,
    CompiledSchema,
    TooLargeToValidate,
    ValidatorHandle,
    Validators,
    compile_schema,
    is_json_schema,
)
from toolplug.catalog.validation.patterns import check_patterns
from toolplug.errors import InvalidDefinition

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_SCHEMA_NODES = 2_000

# References and `$schema` may lead elsewhere, and a pattern is more than its JSON type.
_NEEDS_COMPILING = re.compile(rb'"(?:\$|pattern)')
_VALIDATORS = Validators()  # of this process, not of a host: equal texts have one validator, whoever calls it
_LEAVES = (str, int, float, NoneType)
_SCALAR_TYPES = frozenset({"string", "integer", "number", "boolean", "null"})


class Schema:
    """One JSON Schema. Equal text is equal; its validator is compiled at the first call and shared by text.

    Raises `InvalidDefinition` for what is not JSON, not an object, or past the limits of a definition
    (64 KiB, depth 32, 2,000 nodes, 10,000 expanded references).
    """

    __slots__ = ("_validator", "text")

    text: bytes
    _validator: ValidatorHandle | None

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
        self._validator = None

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
        """Raise `InvalidDefinition` when the text is no valid JSON Schema, or its patterns are over their limits.

        It is compiled only where that must tell.
        """
        if not _NEEDS_COMPILING.search(self.text) and is_json_schema(self.value):
            return
        check_patterns(self.value)
        compile_schema(self.text)

    def is_valid(self, instance: object) -> bool:
        """Is the instance valid. It is not where it is no JSON, or would take too long to validate."""
        try:
            return self._compiled().is_valid(instance)
        except (TypeError, ValueError, TooLargeToValidate):
            return False

    def refusals(self, instance: object) -> tuple[str, ...]:
        """Why the instance is not valid: at most 20 lines `/pointer: message`, values masked; empty when it is.

        One line stands for what would hold up the loop: `/: too large to validate` where that is so of validating, and
        `/: invalid, too large to explain` where it is so of finding every error.
        """
        handle = self._validator
        try:
            compiled = (handle.compiled if handle is not None else None) or self._compiled()
            return () if compiled.is_valid(instance) else compiled.explain(instance)
        except TooLargeToValidate:
            return (TOO_LARGE_TO_VALIDATE,)
        except (TypeError, ValueError) as error:
            return (f"/: not JSON: {error}",)

    def _compiled(self) -> CompiledSchema:
        handle = self._validator
        if handle is None:
            handle = self._validator = _VALIDATORS.handle(self.text)
        return handle.compiled or _VALIDATORS.compile(handle, self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Schema({self.text.decode()})"


def _admits_one_scalar(schema: object) -> bool:
    return isinstance(schema, dict) and cast("dict[str, object]", schema).get("type") in _SCALAR_TYPES


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
