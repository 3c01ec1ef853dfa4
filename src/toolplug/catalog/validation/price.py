"""Prices of JSON Schemas: the time of each keyword for each type of value, in nanoseconds.

The figures are measured on jsonschema-rs and rounded up; `tests/execution/test_hostile_validation.py` fails if they are
too low.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import cast

import orjson

from toolplug.catalog.exact_json import dump_json
from toolplug.catalog.schema_walk import Node
from toolplug.catalog.validation.priced_schema import PricedSchema

# The validator holds the GIL and cannot be stopped: a value over its budget is refused before it is validated.
MAX_VALIDITY_NS = 12_000_000
MAX_EXPLANATION_NS = 10_000_000
_MAX_EFFORT_NS = 10_000_000
_MAX_EXPLANATION_EFFORT_NS = 4_000_000
"""Budgets of pricing itself."""

MAX_EXPLAINED_VALUES = 5_000
"""A second bound of an explanation, which does not rest on the prices: an error takes 7 µs (measured), so that one for
each value keeps within 50 ms, whatever the schema is."""

# Times of the pricing itself, not of the library: one turn of the loop in `is_within`; for each value `type` in a
# `map`, a link of `chain`, a comparison or length, and an entry that is plucked out of an object.
_BATCH_NS = 2_000
_TYPE_NS, _CHAIN_NS = 20, 10
_LOOK_NS = 40
_PLUCK_NS = 60
_WIDEST = 4  # bytes of a character
# For integers over 64 bits: 4,300 digits take 0.6 ms to compare, and a bit is 0.302 digits (log10 of 2).
_DIGITS_NS = 0.05  # times the square of an integer's digits
_DIGITS_A_BIT = 0.302
# Items that are hashed: those of any type are walked, texts are hashed as bytes.
_UNIQUE_NS, _UNIQUE_TEXT_NS = (150, 12), (60, 6)  # for each item, and for each byte of its JSON
# The library compares up to 15 items pair by pair, and from 16 on makes hashes: an array of 15 integers takes longer
# than one of 100. Pairs of integers over 64 bits are compared as texts, whatever their number.
_PAIR_BYTE_NS, _PAIRWISE, _PAIR_NS = 32, 16, 2_500
# A byte of the value that an error copies, and a byte that `orjson.dumps` writes to find out how many there are.
_ERROR_BYTE_NS, _DUMPED_BYTE_NS = 80, 2

Batch = list[object]


def affords_validity(schema: PricedSchema, value: object) -> bool:
    """Return True if the price of validating the value is within its budget of 12 ms."""
    return _Price(schema, value, explaining=False).is_within(MAX_VALIDITY_NS)


def affords_explanation(schema: PricedSchema, value: object) -> bool:
    """Return True if the value is of at most 5,000 values, and finding every error is within its budget of 10 ms."""
    return _has_at_most(MAX_EXPLAINED_VALUES, value) and _Price(schema, value, explaining=True).is_within(
        MAX_EXPLANATION_NS
    )


def _has_at_most(count: int, value: object) -> bool:
    """Return True if there are at most so many values, containers and what is inside them; looks at no more."""
    found = [value]
    for each in found:  # grows while it is walked
        inner: Collection[object] = ()
        if isinstance(each, dict):
            inner = cast("Node", each).values()
        elif isinstance(each, list):
            inner = cast("Batch", each)
        if len(found) + len(inner) > count:
            return False
        found.extend(inner)
    return True


class _Price:
    """Adds up the price of one value, batch by batch."""

    def __init__(self, schema: PricedSchema, value: object, *, explaining: bool) -> None:
        self._waiting: list[tuple[PricedSchema, Batch, int]] = [(schema, [value], 1)]
        self._explaining = explaining
        self._max_effort = _MAX_EXPLANATION_EFFORT_NS if explaining else _MAX_EFFORT_NS
        self._total = self._effort = 0.0

    def is_within(self, budget_ns: int) -> bool:
        """Add until everything is counted; return False if the budget, or that of pricing, is exceeded."""
        while self._waiting:
            schema, values, factor = self._waiting.pop()
            if not values:
                continue
            # Some keywords make the library check everything below them more than once.
            factor *= schema.factor
            self._effort += _BATCH_NS
            self._total += factor * schema.flat_ns * len(values)
            if self._explaining:
                self._total += factor * self._errors(schema, values)
            # A plain schema costs the same for every value, so that the values need not be looked at.
            if not schema.plain:
                self._total += factor * self._kinds(schema, values, factor)
            if self._total > budget_ns or self._effort > self._max_effort:
                return False
        return True

    def _is_over(self, effort_ns: int) -> bool:
        """Add to the time of pricing itself; return True if it is over its budget."""
        self._effort += effort_ns
        return self._effort > self._max_effort

    def _kinds(self, schema: PricedSchema, values: Batch, factor: int) -> float:
        """Return the price of the schema's own keywords, and queue the schemas that it applies."""
        total = 0.0
        self._waiting.extend((each, values, factor) for each in schema.same_value)
        if self._is_over(_TYPE_NS * len(values)):
            return total
        kinds = set(map(type, values))
        if schema.text.once_ns and str in kinds:
            texts = cast("list[str]", self._of(values, kinds, str))
            self._effort += _LOOK_NS * len(texts)
            total += schema.text.once_ns * len(texts) + schema.text.character_ns * _encoded_length(texts)
        if schema.numbers and float in kinds:
            total += self._floats(schema, cast("list[float]", self._of(values, kinds, float)))
        if schema.numbers and int in kinds:
            total += self._integers(schema, cast("list[int]", self._of(values, kinds, int)))
        if dict in kinds:
            total += self._objects(schema, cast("list[dict[str, object]]", self._of(values, kinds, dict)), factor)
        if list in kinds:
            total += self._arrays(schema, cast("list[Batch]", self._of(values, kinds, list)), factor)
        return total

    def _of(self, values: Batch, kinds: set[type], kind: type) -> Batch:
        """Return the values of one type, of those in `kinds`."""
        if len(kinds) == 1:
            return values
        self._effort += _LOOK_NS * len(values)
        return [value for value in values if type(value) is kind]

    def _floats(self, schema: PricedSchema, values: list[float]) -> float:
        self._effort += 2 * _LOOK_NS * len(values)
        # A float with an extreme exponent becomes a fraction of hundreds of digits in `multipleOf`.
        usual = all(value == 0.0 or 1e-9 < abs(value) < 1e15 for value in values)
        return (schema.float_ns if usual else schema.odd_ns) * len(values)

    def _integers(self, schema: PricedSchema, values: list[int]) -> float:
        self._effort += 2 * _TYPE_NS * len(values)
        price = schema.whole_ns * len(values)
        # What a machine word cannot hold is compared as a big integer, whose cost grows with the square of its digits.
        if min(values) < -(1 << 63) or max(values) >= 1 << 64:
            self._effort += 2 * _LOOK_NS * len(values)
            digits = [_DIGITS_A_BIT * value.bit_length() for value in values]
            price += schema.numbers * _DIGITS_NS * sum(count * count for count in digits)
            price += (schema.float_ns + schema.odd_ns) * len(values)
        return price

    def _objects(self, schema: PricedSchema, objects: list[dict[str, object]], factor: int) -> float:
        if self._is_over(3 * _TYPE_NS * len(objects)):
            return 0.0
        entries = sum(map(len, objects))
        total = schema.container_ns * len(objects) + schema.entry_ns * entries
        if schema.keys.character_ns or schema.names is not None:
            self._effort += 3 * _LOOK_NS * entries
            keys = list(chain.from_iterable(objects))
            total += schema.keys.character_ns * _encoded_length(keys)
            if schema.names is not None:
                self._waiting.append((schema.names, cast("Batch", keys), factor))
        for name, below in schema.properties.items():
            if below.plain and not self._explaining:
                total += below.flat_ns * len(objects)
                continue
            if self._is_over(_PLUCK_NS * len(objects)):
                return total
            self._waiting.append((below, [each[name] for each in objects if name in each], factor))
        if schema.values:
            self._effort += _LOOK_NS * entries
            every = list(chain.from_iterable(each.values() for each in objects))
            for below in schema.values:
                self._waiting.append((below, every, factor))
        if schema.other_values is not None:
            self._effort += _PLUCK_NS * entries
            named = schema.properties
            others = [value for each in objects for name, value in each.items() if name not in named]
            self._waiting.append((schema.other_values, others, factor))
        return total

    def _arrays(self, schema: PricedSchema, arrays: list[Batch], factor: int) -> float:
        if self._is_over(3 * _TYPE_NS * len(arrays)):
            return 0.0
        entries = sum(map(len, arrays))
        total = schema.container_ns * len(arrays) + schema.entry_ns * entries
        if schema.unique:
            total += sum(self._unique(each) for each in arrays)
        if schema.items:
            if self._is_over(_CHAIN_NS * entries):
                return total
            every = list(chain.from_iterable(arrays))
            for below in schema.items:
                self._waiting.append((below, every, factor))
        for index, below in enumerate(schema.prefix):
            self._effort += _PLUCK_NS * len(arrays)
            self._waiting.append((below, [each[index] for each in arrays if len(each) > index], factor))
        return total

    def _unique(self, items: Batch) -> float:
        """Return the price of `uniqueItems`: few items and integers over 64 bits are compared, others hashed."""
        if len(items) < 2:
            return 0.0
        size = self._size(items)
        if size is None:
            # Without a hash for big integers the library compares each item with each other one.
            pairs = float(_PAIR_NS * len(items) ** 2)
            return pairs if pairs > MAX_VALIDITY_NS else pairs + _PAIR_BYTE_NS * len(items) * len(dump_json(items))
        if len(items) < _PAIRWISE:
            return _PAIR_BYTE_NS * size * len(items)
        each, byte = _UNIQUE_TEXT_NS if set(map(type, items)) == {str} else _UNIQUE_NS
        return each * len(items) + byte * size

    def _errors(self, schema: PricedSchema, values: Batch) -> float:
        """Return the price of the errors, each with a copy of its value; a column counts as one value."""
        objects = cast("list[Node]", [value for value in values if isinstance(value, Mapping)])
        missing = 0
        self._effort += _LOOK_NS * len(values) + 2 * _LOOK_NS * len(objects) * len(schema.required)
        if self._effort <= self._max_effort:
            missing = max((sum(name not in each for name in schema.required) for each in objects), default=0)
        # The error of `type` cannot come if every value is an object.
        always = schema.is_object and len(objects) == len(values)
        errors = schema.errors - always + missing
        if schema.names is not None:
            keys = max(map(len, objects), default=0)
            errors += keys * (1 + _errors_in_place(schema.names))
        if not errors:
            return 0.0
        size = self._size(values)
        if size is None:
            size = len(dump_json(values))
        return errors * (schema.error_ns * len(values) + _ERROR_BYTE_NS * size)

    def _size(self, values: Batch) -> int | None:
        """Return the bytes of the JSON of the values, None for integers over 64 bits."""
        try:
            size = len(orjson.dumps(values))
        except TypeError:
            return None
        self._effort += _DUMPED_BYTE_NS * size
        return size


def _encoded_length(texts: Iterable[str]) -> int:
    """Return an upper bound of the bytes of the texts."""
    return sum(len(text) if text.isascii() else _WIDEST * len(text) for text in texts)


def _errors_in_place(schema: PricedSchema) -> int:
    """Return the number of errors for one value, of the schema and those for the same value, counted to 1,000."""
    errors, waiting = 0, [schema]
    while waiting and errors < 1_000:
        each = waiting.pop()
        errors += each.errors + 1
        waiting += each.same_value
    return errors
