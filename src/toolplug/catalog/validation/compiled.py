"""Validating values with compiled JSON Schemas: bounded in time and in memory, and explained in plain words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, cast
from weakref import WeakValueDictionary, finalize

import orjson

from toolplug import library_types
from toolplug.catalog.validation.patterns import MAX_AUTOMATON_KIB, STATES_KIB, memory_kib
from toolplug.catalog.validation.price import MAX_VALIDITY_NS, affords_explanation, affords_validity
from toolplug.catalog.validation.priced_schema import PricedSchema, free_bytes, priced_schema
from toolplug.errors import InvalidDefinition

MAX_REPORTED = 20
MAX_LINE = 300
MAX_OPTIONS = 20
MAX_COMPILED_BYTES = 64 * 1024 * 1024

TOO_LARGE_TO_VALIDATE: Final = "/: too large to validate"
TOO_LARGE_TO_EXPLAIN: Final = "/: invalid, too large to explain"

_COMPILED_BYTES = 16 * 1024
_BYTES_A_BYTE = 40
"""A compiled schema takes so many times its text (65 KB for 1.5 KB measured), its prices included."""

_MASK = "the value"


class TooLargeToValidate(Exception):
    """The value would take longer to validate than the loop may be held."""


class CompiledSchema:
    """The validator of one schema text. `is_valid` raises `TooLargeToValidate` before anything is validated.

    A schema that looks at a fixed number of values has no such value, and its `is_valid` is the validator's own.
    """

    __slots__ = ("_prices", "_validator", "is_valid", "size")

    def __init__(self, text: bytes) -> None:
        self._validator = compile_schema(text)
        schema = orjson.loads(text)
        self._prices = priced_schema(schema)
        free = free_bytes(self._prices, MAX_VALIDITY_NS)
        self.size: int = _COMPILED_BYTES + _BYTES_A_BYTE * len(text) + 1024 * memory_kib(schema)
        self.is_valid: Callable[[object], bool] = (
            self._validator.is_valid if math.isinf(free) else _Measured(self._validator, self._prices, free)
        )

    def explain(self, instance: object) -> tuple[str, ...]:
        """Why the instance is not valid: at most 20 lines `/pointer: message`, values masked."""
        if not affords_explanation(self._prices, instance):
            return (TOO_LARGE_TO_EXPLAIN,)
        errors = list(self._validator.iter_errors(cast("Any", instance)))[:MAX_REPORTED]
        return tuple(_line(error) for error in errors)


class _Measured:
    """Validates what costs no more than the budget."""

    __slots__ = ("_free_bytes", "_prices", "_validator")

    def __init__(self, validator: library_types.Validator, prices: PricedSchema, free: float) -> None:
        self._validator = validator
        self._prices = prices
        self._free_bytes = free

    def __call__(self, instance: object) -> bool:
        if not self._is_small(instance) and not affords_validity(self._prices, instance):
            raise TooLargeToValidate
        return self._validator.is_valid(instance)

    def _is_small(self, instance: object) -> bool:
        try:
            return len(orjson.dumps(instance)) <= self._free_bytes
        except TypeError:  # an integer over 64 bits, among others
            return False


class ValidatorHandle:
    """What all schemas of one text share; `compiled` is None before the first call and where room was needed."""

    __slots__ = ("__weakref__", "compiled")

    def __init__(self) -> None:
        self.compiled: CompiledSchema | None = None


class Validators:
    """Compiled schemas by their text, at most `max_bytes` of them; those that were compiled first go first.

    One lives as long as a schema that has its text: what only an ended session had is released with it.
    """

    def __init__(self, max_bytes: int = MAX_COMPILED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._handles: WeakValueDictionary[bytes, ValidatorHandle] = WeakValueDictionary()
        self._sizes: dict[bytes, int] = {}

    @property
    def compiled_bytes(self) -> int:
        """What the compiled schemas take, estimated."""
        return sum(self._sizes.values())

    def handle(self, text: bytes) -> ValidatorHandle:
        """What schemas of this text share."""
        known = self._handles.get(text)
        if known is None:
            known = self._handles[text] = ValidatorHandle()
            finalize(known, self._sizes.pop, text, None).atexit = False
        return known

    def compile(self, handle: ValidatorHandle, text: bytes) -> CompiledSchema:
        """The compiled schema, kept in its handle. Raises `InvalidDefinition` for what is no valid JSON Schema."""
        compiled = handle.compiled = CompiledSchema(text)
        self._sizes[text] = compiled.size
        while len(self._sizes) > 1 and self.compiled_bytes > self._max_bytes:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            released = self._handles.get(oldest)
            if released is not None:
                released.compiled = None
        return compiled


def compile_schema(text: bytes) -> library_types.Validator:
    """Return the validator of a schema text. Its patterns are linear in time; remote references are not fetched."""
    options = library_types.RegexOptions(size_limit=MAX_AUTOMATON_KIB * 1_024, dfa_size_limit=STATES_KIB * 1_024)
    try:
        return library_types.validator_for(text.decode(), retriever=_refuse, mask=_MASK, pattern_options=options)
    except (ValueError, library_types.ReferencingError) as error:
        reason = str(error).split("\n", 1)[0]
        raise InvalidDefinition(f"not a valid JSON Schema: {reason}") from None


def is_json_schema(value: dict[str, object]) -> bool:
    """Return whether the value is valid by the metaschema of JSON Schema."""
    return library_types.meta.is_valid(value)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"the remote reference {uri!r} is not fetched; put the schema under $defs")


def _line(error: library_types.ValidationError) -> str:
    pointer = "".join(f"/{_escaped(part)}" for part in error.instance_path) or "/"
    return _cut(f"{_cut(pointer, MAX_LINE // 2)}: {_message(error)}", MAX_LINE)


def _message(error: library_types.ValidationError) -> str:
    """What the value must be, without the value."""
    kinds, kind = library_types.ValidationErrorKind, error.kind
    match kind:
        case kinds.Type():
            return f"must be of type {_listed(kind.types, ' or ')}"
        case kinds.Enum():
            return f"must be one of {_listed(kind.options)}"
        case kinds.Constant():
            return f"must be {_listed([kind.expected_value])}"
        case kinds.Required():
            return f"{_listed([kind.property])} is required"
        case kinds.AdditionalProperties() | kinds.UnevaluatedProperties():
            return f"{_listed(kind.unexpected)} {'is' if len(kind.unexpected) == 1 else 'are'} not allowed"
        case kinds.FalseSchema():
            return "is not allowed"
        case kinds.AnyOf() | kinds.OneOfNotValid():
            return "fits none of the alternatives"
        case kinds.OneOfMultipleValid():
            return "fits more than one of the alternatives"
        case kinds.Not():
            return "is excluded by `not`"
        case _:
            return error.message.removeprefix(f"{_MASK} ")


def _listed(values: Iterable[object], joint: str = ", ") -> str:
    every = list(values)
    shown = [_cut(orjson.dumps(value).decode(), MAX_LINE // 3) for value in every[:MAX_OPTIONS]]
    more = [f"{len(every) - MAX_OPTIONS} more"] if len(every) > MAX_OPTIONS else []
    return joint.join(shown + more)


def _escaped(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
