"""Validating values with compiled JSON Schemas: bounded time and memory, and errors in plain words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NoReturn, cast
from weakref import WeakValueDictionary, finalize

import orjson

from toolplug import library_types
from toolplug.catalog.exact_json import dump_json
from toolplug.catalog.schema_walk import pointer_part
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
"""Memory of a compiled schema with its prices, for each byte of its text (65 KB for 1.5 KB measured)."""

_MASK = "the value"


class TooLargeToValidate(Exception):
    """Validating the value could block the event loop for too long."""


class CompiledSchema:
    """The validator of one schema text; `size` is its memory in bytes, estimated.

    `is_valid` raises `TooLargeToValidate`, before it validates, for a value over the budget. A schema that checks a
    fixed number of parts accepts a value of any size, and its `is_valid` is the validator's own.
    """

    __slots__ = ("_prices", "_validator", "is_valid", "size")

    def __init__(self, text: bytes) -> None:
        self._validator = compile_schema(text)
        schema = orjson.loads(text)
        self._prices = priced_schema(schema)
        free = free_bytes(self._prices, MAX_VALIDITY_NS)
        self.size: int = _COMPILED_BYTES + _BYTES_A_BYTE * len(text) + 1024 * memory_kib(schema)
        self.is_valid: Callable[[object], bool] = (
            self._validator.is_valid if math.isinf(free) else partial(_is_valid, self._validator, self._prices, free)
        )

    def explain(self, instance: object) -> tuple[str, ...]:
        """Return the errors of an instance, at most 20 lines `/pointer: message` with values masked."""
        if not affords_explanation(self._prices, instance):
            return (TOO_LARGE_TO_EXPLAIN,)
        errors = list(self._validator.iter_errors(cast("Any", instance)))[:MAX_REPORTED]
        return tuple(_line(error) for error in errors)


def _is_valid(validator: library_types.Validator, prices: PricedSchema, free: float, instance: object) -> bool:
    """Validate a value within the budget: one of at most `free` bytes of JSON, or with a price that is affordable."""
    try:
        is_small = len(orjson.dumps(instance)) <= free
    except TypeError:  # an integer over 64 bits, among others
        is_small = False
    if not is_small and not affords_validity(prices, instance):
        raise TooLargeToValidate
    return validator.is_valid(instance)


class ValidatorHandle:
    """The shared state of all schemas of one text; `compiled` is None before the first call and after an eviction."""

    __slots__ = ("__weakref__", "compiled")

    def __init__(self) -> None:
        self.compiled: CompiledSchema | None = None


class Validators:
    """Compiled schemas by their text, at most `max_bytes` in sum; the one that was compiled first is evicted first.

    One lives as long as a schema of its text: that of a session's tool is released with the session.
    """

    def __init__(self, max_bytes: int = MAX_COMPILED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._handles: WeakValueDictionary[bytes, ValidatorHandle] = WeakValueDictionary()
        self._sizes: dict[bytes, int] = {}

    def handle(self, text: bytes) -> ValidatorHandle:
        """Return the handle that all schemas of this text share."""
        known = self._handles.get(text)
        if known is None:
            known = self._handles[text] = ValidatorHandle()
            finalize(known, self._sizes.pop, text, None).atexit = False
        return known

    def compile(self, handle: ValidatorHandle, text: bytes) -> CompiledSchema:
        """Compile a schema into its handle, and return it. Raises `InvalidDefinition` for an invalid JSON Schema."""
        compiled = handle.compiled = CompiledSchema(text)
        self._sizes[text] = compiled.size
        # The last one always stays, even if it is over the limit alone: it is about to be used.
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._max_bytes:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            # The handle stays with its schema and compiles again at its next use.
            released = self._handles.get(oldest)
            if released is not None:
                released.compiled = None
        return compiled


_PANIC = "PanicException"
"""The name of what the library raises for its own faults."""


def compile_schema(text: bytes) -> library_types.Validator:
    """Return the validator of a schema text; patterns take linear time, and remote references are not fetched.

    Raises `InvalidDefinition` for an invalid JSON Schema.
    """
    # The linear engine: a schema of a server must not choose how long a match takes.
    options = library_types.RegexOptions(size_limit=MAX_AUTOMATON_KIB * 1_024, dfa_size_limit=STATES_KIB * 1_024)
    try:
        return library_types.validator_for(text.decode(), retriever=_refuse, mask=_MASK, pattern_options=options)
    except (ValueError, library_types.ReferencingError) as error:
        # The rest of the text repeats the schema, which may be megabytes.
        reason = str(error).split("\n", 1)[0]
        raise InvalidDefinition(f"not a valid JSON Schema: {reason}") from None
    except BaseException as error:
        # The library panics where two schemas have one `$id` and one of them lacks the anchor that is referred to. What
        # it raises is no `Exception`, and no module has it.
        if type(error).__name__ != _PANIC:
            raise
        raise InvalidDefinition(f"not a valid JSON Schema: its references cannot be followed ({error})") from None


def is_json_schema(value: dict[str, object]) -> bool:
    """Return whether the value is valid by the metaschema of JSON Schema."""
    return library_types.meta.is_valid(value)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"the remote reference {uri!r} is not fetched; put the schema under $defs")


def _line(error: library_types.ValidationError) -> str:
    # For `anyOf` the library says only that none fits; a model needs to know what is wrong in the one it meant.
    error = _find_intended(error)
    pointer = "".join(map(pointer_part, error.instance_path)) or "/"
    return _cut(f"{_cut(pointer, MAX_LINE // 2)}: {_message(error)}", MAX_LINE)


def _find_intended(error: library_types.ValidationError) -> library_types.ValidationError:
    """Return the error of the one alternative whose type the value has, such as the other one than null."""
    kinds = library_types.ValidationErrorKind
    while isinstance(error.kind, kinds.AnyOf | kinds.OneOfNotValid):
        place = error.instance_path
        fitting = [
            errors
            for errors in error.kind.context
            if not any(isinstance(each.kind, kinds.Type) and each.instance_path == place for each in errors)
        ]
        if len(fitting) != 1 or not fitting[0]:
            break
        error = fitting[0][0]
    return error


def _message(error: library_types.ValidationError) -> str:
    """Return the requirement that a value does not meet, without the value."""
    kinds, kind = library_types.ValidationErrorKind, error.kind
    match kind:
        case kinds.Type():
            return f"must be of type {_list(kind.types, ' or ')}"
        case kinds.Enum():
            return f"must be one of {_list(kind.options)}"
        case kinds.Constant():
            return f"must be {_list([kind.expected_value])}"
        case kinds.Required():
            return f"{_list([kind.property])} is required"
        case kinds.AdditionalProperties() | kinds.UnevaluatedProperties():
            return f"{_list(kind.unexpected)} {'is' if len(kind.unexpected) == 1 else 'are'} not allowed"
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


def _list(values: Iterable[object], joint: str = ", ") -> str:
    every = list(values)
    shown = [_cut(dump_json(value).decode(), MAX_LINE // 3) for value in every[:MAX_OPTIONS]]
    more = [f"{len(every) - MAX_OPTIONS} more"] if len(every) > MAX_OPTIONS else []
    return joint.join(shown + more)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
