"""The price of validating a value, and of finding all its errors, computed before either begins.

jsonschema-rs holds the GIL and cannot be stopped, so validation that would take too long must not begin. The price is
an upper bound: it includes every keyword that may be applied, even after a failure. Values for the same schema are
priced together (16,000 rows are a column for each property), so that a megabyte is priced in milliseconds; if pricing
itself takes too long, the value is too large. Errors cost more, because each copies its value. A worker process for
values over the budget was not needed: see `docs/explanation/trust.md`.

A schema has a price by keyword and type of value, in nanoseconds. The figures are measured on jsonschema-rs and rounded
up; `tests/execution/test_hostile_validation.py` fails if they are too low.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import NamedTuple, cast

import orjson

from toolplug.catalog.exact_json import dump_json
from toolplug.catalog.schema_walk import NO_VALUE, SAME_VALUE, Node, References, references, subschemas
from toolplug.catalog.validation.patterns import character_ns

# What each figure bounds, with the value that was measured (one more item in an array of 1,000, minimum of many runs;
# to measure again, take `jsonschema_rs.validator_for(…).is_valid`). A keyword that does not concern the type of the
# value, such as `maxLength` of an integer, takes a few nanoseconds: it is visited, and no more.
_KEYWORD_NS = 12
# A name of `required` or `properties` that is looked up in an object of 20 entries.
_NAME_NS = 25
# An item of `items: {}`, and an entry under `additionalProperties` or `propertyNames`, which also makes its key a
# value.
_ITEM_NS, _ENTRY_NS = 10, 30
# `{"minimum": 3}` of 5 is a comparison of machine words; `{"minimum": 3.5}` of 5.25 makes exact fractions of both.
_WHOLE_NS, _FLOAT_NS = 10, 900
# `{"multipleOf": 3}` of 9, `{"multipleOf": 0.5}` of 2.5, and `{"multipleOf": 0.1}` of 1e300, whose fraction has three
# hundred digits: the last takes fifteen times as long as the second.
_WHOLE_MULTIPLE_NS, _MULTIPLE_NS, _ODD_MULTIPLE_NS = 120, 1_500, 15_000
# Each option of an `enum` of texts, which is a set; of whole numbers among texts, compared one after another; of
# fractions, as with `minimum`; and each node of options that are arrays or objects.
_OPTION_NS, _WHOLE_OPTION_NS, _NUMBER_OPTION_NS, _CONTAINER_NODE_NS = 5, 130, 1_500, 200
# Once and for each character, of the formats that parse: a regex is compiled, a host name is normalised as Unicode, an
# address is taken apart. The others, such as `uuid` and `date-time`, look at each character once.
_FORMATS_NS = {"regex": (500, 50), "idn-hostname": (500, 100), "email": (150, 5), "idn-email": (150, 5)}
_FORMAT_NS = (40, 3)
# `contentMediaType: application/json` parses the text; an array of digits is the worst for each character.
_MEDIA_NS = (200, 35)
# The start of a search, without its characters, which `character_ns` prices.
_PATTERN_NS = 50
_UNEVALUATED_NS, _UNEVALUATED_FACTOR = 100, 3  # each level is checked 2.7 times (measured)

# An error of `type` among 1,000, with its two paths as Python objects; an error of `not` or `enum` writes its schema.
_ERROR_NS, _SCHEMA_BYTE_NS = 3_000, 10

_WORST_INTEGER_NS = 600_000
"""The time to compare a bound with an integer of 4,300 digits."""
# 16 items that are compared with each other at 32 ns a byte (`_PAIRWISE`, `_PAIR_BYTE_NS` in `price`).
_UNIQUE_BYTE_NS = 512
# Bounds the walk, since a schema may expand exponentially; such a schema has no size that is free.
_MAX_EXPANDED = 2_000

_ANNOTATIONS = frozenset(
    {"$defs", "$id", "$schema", "$anchor", "$dynamicAnchor", "$comment", "definitions", "title", "description"}
    | {"default", "examples", "deprecated", "readOnly", "writeOnly"}
)
_SILENT = _ANNOTATIONS | frozenset(
    {"$ref", "type", "required", "properties", "items", "prefixItems", "allOf", "if", "then", "else"}
)
"""Keywords without errors of their own, or whose errors are counted on the value."""

_ONE_ERROR = frozenset(
    {"additionalProperties", "unevaluatedProperties", "propertyNames"}
    | {"additionalItems", "unevaluatedItems", "contains"}
)
"""Keywords whose `false` is one error of the whole value; under any other, it is one of each value."""


class TextPrice(NamedTuple):
    """The price of a keyword for a text: once, and for each character."""

    once_ns: int = 0
    character_ns: int = 0


class PricedSchema:
    """One schema: the price of its own keywords, and the schemas that it applies.

    flat_ns: for every value; a `plain` schema has no other price
    text, whole_ns, float_ns, odd_ns: for texts, integers, numbers with a fraction, and those with extreme exponents
    numbers: the number of keywords that compare numbers
    container_ns, entry_ns: for an object or array, and for each of its entries
    keys: for each key of an object
    errors, error_ns: the number of errors that a value may have, and the price of each without the copy of the value
    factor: the number of times that everything is checked
    """

    def __init__(self, schema: Node) -> None:
        # Every keyword is charged for every value, since the library visits it even if the type does not fit.
        self.flat_ns: int = _KEYWORD_NS * (1 + sum(keyword not in _ANNOTATIONS for keyword in schema))
        self.text: TextPrice = TextPrice()
        self.keys: TextPrice = TextPrice()
        self.whole_ns: int = 0
        self.float_ns: int = 0
        self.odd_ns: int = 0
        self.numbers: int = 0
        self.container_ns: int = 0
        self.entry_ns: int = 0
        self.errors: int = sum(keyword not in _SILENT for keyword in schema) + ("type" in schema)
        self.error_ns: int = _ERROR_NS
        self.factor: int = 1
        self.unique: bool = schema.get("uniqueItems") is True
        self.is_object: bool = schema.get("type") == "object"
        required = schema.get("required")
        self.required: tuple[str, ...] = tuple(cast("list[str]", required)) if isinstance(required, list) else ()
        self.same_value: list[PricedSchema] = []
        self.properties: dict[str, PricedSchema] = {}
        self.values: list[PricedSchema] = []
        self.other_values: PricedSchema | None = None
        self.names: PricedSchema | None = None
        self.items: list[PricedSchema] = []
        self.prefix: list[PricedSchema] = []
        self.plain: bool = False
        for keyword, value in schema.items():
            self._charge_scalars(keyword, value)
            self._charge_containers(keyword, value)

    def _charge_scalars(self, keyword: str, value: object) -> None:
        """Add the price of a keyword for texts, numbers and options."""
        match keyword:
            case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
                self._number(_WHOLE_NS if isinstance(value, int) else _FLOAT_NS, _FLOAT_NS, _FLOAT_NS)
            # A whole divisor of whole numbers is one division; fractions go through exact rationals.
            case "multipleOf" if isinstance(value, int | float):
                whole = _WHOLE_MULTIPLE_NS if isinstance(value, int) else _MULTIPLE_NS
                usual = _MULTIPLE_NS if 1e-9 < value < 1e12 else _ODD_MULTIPLE_NS
                self._number(max(whole, usual if isinstance(value, float) else 0), usual, _ODD_MULTIPLE_NS)
            case "pattern":
                self._string(TextPrice(_PATTERN_NS, character_ns(value)))
            case "format":
                self._string(TextPrice(*_FORMATS_NS.get(str(value), _FORMAT_NS)))
            case "contentMediaType" | "contentEncoding":
                self._string(TextPrice(*_MEDIA_NS))
            case "enum" if isinstance(value, list):
                self._options(cast("list[object]", value))
            case "const":
                self._options([value])
            case _:
                pass

    def _charge_containers(self, keyword: str, value: object) -> None:
        """Add the price of a keyword for objects and arrays, without the schemas under it."""
        match keyword:
            case "required" | "properties" | "prefixItems" | "dependentSchemas" if isinstance(value, list | Mapping):
                self.container_ns += _NAME_NS * len(cast("list[object]", value))
            case "dependentRequired" | "dependencies" if isinstance(value, Mapping):
                named = cast("Mapping[str, object]", value).values()
                names = sum(1 + (len(cast("list[str]", each)) if isinstance(each, list) else 0) for each in named)
                self.container_ns += _NAME_NS * names
                self.errors += names
            case "patternProperties" if isinstance(value, Mapping):
                for pattern in cast("Node", value):
                    self.entry_ns += _PATTERN_NS
                    self.keys = TextPrice(0, self.keys.character_ns + character_ns(pattern))
            case "additionalProperties" if value is False:
                pass  # ends at the first key that is not named
            case "items" | "additionalItems":
                self.entry_ns += _ITEM_NS
            case "additionalProperties" | "contains" | "propertyNames":
                self.entry_ns += _ENTRY_NS
            case "unevaluatedProperties" | "unevaluatedItems":
                self.entry_ns += _UNEVALUATED_NS
                # The library evaluates what is below once for the keyword itself and again to find out what was
                # evaluated.
                self.factor = _UNEVALUATED_FACTOR
            case "not":
                self.error_ns += _SCHEMA_BYTE_NS * len(orjson.dumps(value))
            case _:
                pass

    def _number(self, whole: int, usual: int, odd: int) -> None:
        self.numbers += 1
        self.whole_ns += whole
        self.float_ns += usual
        self.odd_ns += odd

    def _string(self, price: TextPrice) -> None:
        self.text = TextPrice(self.text.once_ns + price.once_ns, self.text.character_ns + price.character_ns)

    def _options(self, options: list[object]) -> None:
        """Add the price of options: those of one scalar type are looked up, others are compared one by one."""
        numbers = [item for item in options if isinstance(item, int | float) and not isinstance(item, bool)]
        containers = [cast("object", item) for item in options if isinstance(item, dict | list)]
        if numbers:
            # Then the library has a set to look up; mixed options are compared one after another.
            alike = len(numbers) == len(options) > 1 and not any(isinstance(item, float) for item in numbers)
            whole = (
                _WHOLE_NS
                if alike
                else sum(_NUMBER_OPTION_NS if isinstance(item, float) else _WHOLE_OPTION_NS for item in numbers)
            )
            self._number(whole, _NUMBER_OPTION_NS * len(numbers), _NUMBER_OPTION_NS * len(numbers))
        self.container_ns += _CONTAINER_NODE_NS * sum(1 + orjson.dumps(item).count(b",") for item in containers)
        if numbers or containers:
            self.flat_ns += _OPTION_NS * len(options)
        self.error_ns += _SCHEMA_BYTE_NS * len(orjson.dumps(options))

    def applies(self) -> list[PricedSchema]:
        """Return the schemas that it applies, to the value or its parts."""
        optional = [each for each in (self.other_values, self.names) if each is not None]
        below = [*self.properties.values(), *self.values, *self.items, *self.prefix]
        return [*self.same_value, *below, *optional]

    def worst_ns(self) -> int:
        """Return the highest price of its own keywords for one value, without its length and entries."""
        number = max(self.whole_ns, self.float_ns, self.odd_ns)
        return self.flat_ns + max(self.text.once_ns, number, self.container_ns)


def priced_schema(schema: Node) -> PricedSchema:
    """Return the priced schema with all that it applies and references resolved; recursion makes a cycle.

    The schema `true` has no price; `false` has that of an error, but where the keyword above it counts it already.
    """
    # Most schemas have no reference; looking for the two bytes is faster than walking them.
    named = References(schema) if b'"$' in orjson.dumps(schema) else None
    made: dict[int, PricedSchema] = {}
    waiting: list[Node] = []

    def one(inner: object) -> PricedSchema | None:
        if not isinstance(inner, Mapping):
            return None
        node = cast("Node", inner)
        # By identity: a schema that is referred to from several places is priced once, and recursion ends.
        if id(node) not in made:
            made[id(node)] = PricedSchema(node)
            waiting.append(node)
        return made[id(node)]

    one(schema)
    while waiting:
        node = waiting.pop()
        above = made[id(node)]
        for keyword, path, inner in subschemas(node):
            below = one(NO_VALUE if inner is False and keyword not in _ONE_ERROR else inner)
            if below is not None:
                _apply(above, keyword, path[-1], below)
        if named is not None:
            targets = [one(target) for reference in references(node) for target in named.find_schemas(reference)]
            above.same_value += [target for target in targets if target is not None]
    _fold(list(made.values()))
    return made[id(schema)]


def _apply(above: PricedSchema, keyword: str, name: str, below: PricedSchema) -> None:
    """Record the parts that the schema under a keyword is applied to; some keywords apply theirs to nothing."""
    if keyword in SAME_VALUE:
        above.same_value.append(below)
    elif keyword == "properties":
        above.properties[name] = below
    elif keyword in ("patternProperties", "unevaluatedProperties"):
        above.values.append(below)
    elif keyword == "additionalProperties":
        above.other_values = below
    elif keyword == "propertyNames":
        above.names = below
    elif keyword == "prefixItems" or (keyword == "items" and name.isdecimal()):
        above.prefix.append(below)
    elif keyword in ("items", "additionalItems", "contains", "unevaluatedItems"):
        above.items.append(below)


def _fold(schemas: list[PricedSchema]) -> None:
    """Merge plain schemas into those that apply them to the same value."""
    changed = True
    # A schema becomes plain when all below it are, so that several rounds are needed; each makes at least one plain.
    while changed:
        changed = False
        for each in schemas:
            plain = [inner for inner in each.same_value if inner.plain]
            if plain:
                each.same_value = [inner for inner in each.same_value if not inner.plain]
                each.flat_ns += sum(inner.flat_ns for inner in plain)
                each.errors += sum(inner.errors for inner in plain)
                each.error_ns = max(each.error_ns, *(inner.error_ns for inner in plain))
            if not each.plain and _is_plain(each):
                each.plain = changed = True


def _is_plain(it: PricedSchema) -> bool:
    costs = it.text.once_ns, it.keys.character_ns, it.numbers, it.container_ns, it.entry_ns
    return not any(costs) and not it.applies() and not it.unique and not it.required and it.factor == 1


def free_bytes(root: PricedSchema, budget_ns: int) -> float:
    """Return the size, in bytes of JSON, up to which any arguments cost no more than the budget.

    Infinite if the schema checks a fixed number of values; 0 for recursion and for schemas that are too large. Each of
    the schemas is applied at most once to a value.
    """
    every_ns = byte_ns = fixed_ns = expanded = 0
    unbounded = False
    waiting = [(root, 1)]
    while waiting:
        each, factor = waiting.pop()
        factor *= each.factor
        expanded += 1
        if expanded > _MAX_EXPANDED:
            return 0
        fixed_ns += factor * (each.worst_ns() + each.numbers * _WORST_INTEGER_NS)
        every_ns += factor * (each.worst_ns() + each.entry_ns)
        byte_ns += factor * (each.text.character_ns + each.keys.character_ns + _UNIQUE_BYTE_NS * each.unique)
        unbounded = unbounded or each.entry_ns > 0
        waiting.extend((below, factor) for below in each.applies())
    if not unbounded and not byte_ns and fixed_ns <= budget_ns:
        return float("inf")
    # Half: a value in JSON takes at least two bytes, itself and a comma or bracket.
    return budget_ns / (byte_ns + every_ns / 2)


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
