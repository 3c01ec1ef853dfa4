"""Prices of JSON Schemas: the time of each keyword for each type of value, in nanoseconds.

The figures are measured on jsonschema-rs and rounded up; `tests/execution/test_hostile_validation.py` fails if they are
too low.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import orjson

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
