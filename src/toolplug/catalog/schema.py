"""JSON Schemas: their text, the limits of their size, and validators that are compiled at the first call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType
from typing import cast

import orjson

from toolplug.catalog.exact_json import dump_json
from toolplug.catalog.schema_walk import References
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

# The meta-schema does not check what `$ref` and `$schema` name, nor patterns.
_NEEDS_COMPILING = re.compile(rb'"(?:\$|pattern)')
_VALIDATORS = Validators()  # of the process, so that all hosts share one validator for equal texts
_LEAVES = (str, int, float, NoneType)
_UNREADABLE = "/: not JSON"
_SCALAR_TYPES = frozenset({"string", "integer", "number", "boolean", "null"})
_PLAIN_OBJECT = frozenset({"type", "properties", "required", "additionalProperties", "title", "description"})
_PLAIN_PROPERTY = frozenset({"type", "title", "description", "default"})


class Schema:
    """One JSON Schema; `text` is its JSON. Schemas of equal text are equal and share one validator.

    Raises `InvalidDefinition` for a value that is not JSON or over the limits of a definition (64 KiB, depth 32, 2,000
    nodes, 10,000 expanded references).
    """

    __slots__ = ("_validator", "text")

    text: bytes
    _validator: ValidatorHandle | None

    def __init__(self, value: Mapping[str, object]) -> None:
        _check_size(value)
        text = _encode(value if isinstance(value, dict) else dict(value))
        if len(text) > MAX_SCHEMA_BYTES:
            raise InvalidDefinition(f"the schema has {len(text)} bytes, {MAX_SCHEMA_BYTES} are allowed")
        if b'"$' in text:
            # Dropped at once: making it checks the references.
            References(orjson.loads(text))
        # a copy, since the encoder's own bytes keep a buffer of some kilobytes
        self.text = bytes(memoryview(text))
        self._validator = None

    @property
    def value(self) -> dict[str, object]:
        """A new copy of the schema as Python objects; integers over 64 bits, which `text` has exactly, are floats."""
        return orjson.loads(self.text)

    @property
    def only_scalars(self) -> bool:
        """True if the schema admits only objects of scalars, of which a shallow copy shares nothing."""
        schema = self.value
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False and isinstance(properties, dict)
        return closed and all(
            isinstance(item, dict) and cast("dict[str, object]", item).get("type") in _SCALAR_TYPES
            for item in cast("dict[str, object]", properties).values()
        )

    def check(self) -> None:
        """Raise `InvalidDefinition` if it is not a valid JSON Schema, or its patterns are over their limits.

        The schema is compiled only if it has references or patterns, or the meta-schema refuses it.
        """
        # Most are plain: for them the library, 3 MB of a server at rest, waits for the first call.
        if _is_plain(self.value) or (not _NEEDS_COMPILING.search(self.text) and is_json_schema(self.value)):
            return
        check_patterns(self.value)
        compile_schema(self.text)

    def is_valid(self, instance: object) -> bool:
        """Return True if the instance is valid; False also if it is not JSON or would take too long to validate."""
        try:
            return self._compile().is_valid(instance)
        except (TypeError, ValueError, TooLargeToValidate):
            return False

    def refusals(self, instance: object) -> tuple[str, ...]:
        """Return the errors of an instance, at most 20 lines `/pointer: message` with values masked; empty if valid.

        The only line is `/: too large to validate` if validating would block the event loop for too long, and
        `/: invalid, too large to explain` if finding every error would.
        """
        handle = self._validator
        try:
            # The usual case inline: this runs for the arguments of each call.
            compiled = (handle.compiled if handle is not None else None) or self._compile()
            return () if compiled.is_valid(instance) else compiled.explain(instance)
        except TooLargeToValidate:
            return (TOO_LARGE_TO_VALIDATE,)
        except (TypeError, ValueError) as error:
            return (f"{_UNREADABLE}: {error}",)

    def contradictions(self, result: object) -> tuple[str, ...]:
        """Return the errors of a tool's result, which is JSON, as `refusals` does.

        Empty also for a result that would take too long to validate: it is passed on unchecked.
        """
        lines = self.refusals(result)
        if lines and lines[0].startswith(_UNREADABLE):  # a UUID, which the encoder writes as text
            lines = self.refusals(orjson.loads(orjson.dumps(result)))
        return () if lines and lines[0].startswith((_UNREADABLE, TOO_LARGE_TO_VALIDATE)) else lines

    def _compile(self) -> CompiledSchema:
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


def _is_plain(value: Mapping[str, object]) -> bool:
    """Return whether a schema is one of objects of scalars that is valid by the few keywords it has."""
    properties, required = value.get("properties"), value.get("required", [])
    if value.get("type") != "object" or not isinstance(properties, dict) or not isinstance(required, list):
        return False
    names = cast("list[object]", required)
    return (
        _has_only(value, _PLAIN_OBJECT)
        and isinstance(value.get("additionalProperties", False), bool)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names)
        and all(_is_plain_property(item) for item in cast("dict[str, object]", properties).values())
    )


def _is_plain_property(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    value = cast("dict[str, object]", item)
    kind = value.get("type")
    return isinstance(kind, str) and kind in _SCALAR_TYPES and _has_only(value, _PLAIN_PROPERTY)


def _has_only(value: Mapping[str, object], keywords: frozenset[str]) -> bool:
    """Return whether it has no keyword but these, and its title and description are texts."""
    return value.keys() <= keywords and all(isinstance(value.get(key, ""), str) for key in ("title", "description"))


def _encode(value: dict[str, object]) -> bytes:
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError) as error:
        if "exceeds 64-bit range" not in str(error):
            raise InvalidDefinition(f"the schema is not JSON: {error}") from None
    try:
        text = dump_json(value)
    except (TypeError, ValueError) as error:
        raise InvalidDefinition(f"the schema is not JSON: {error}") from None
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InvalidDefinition("the schema has an integer over 1.8e308, which its readers cannot read") from None
    return text


def _check_size(value: object) -> None:
    """Raise `InvalidDefinition` for a schema that is too deep or has too many nodes, or contains itself."""
    level, nodes, depth = [value], 0, 0
    while level:
        nodes += len(level)
        if nodes > MAX_SCHEMA_NODES:
            raise InvalidDefinition(f"the schema has more than {MAX_SCHEMA_NODES} nodes")
        if depth > MAX_SCHEMA_DEPTH:
            raise InvalidDefinition(f"the schema is more than {MAX_SCHEMA_DEPTH} levels deep")
        below: list[object] = []
        for node in level:
            if isinstance(node, _LEAVES):
                continue
            if isinstance(node, Mapping):
                below.extend(node.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
            elif isinstance(node, list | tuple):
                below.extend(node)  # pyright: ignore[reportUnknownArgumentType]
        level, depth = below, depth + 1
