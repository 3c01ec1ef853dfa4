"""Rules of grants: JSON Schemas that are closed before they are used, and calls as they run, with their defaults.

A person writes what it thinks of. What it does not think of must not be allowed by that: an argument that the schema
does not name, one that is left out, a value of another type than a limit is about, or a misspelt keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, cast

from toolplug.catalog.exact_json import as_object, load_json
from toolplug.catalog.schema import Schema
from toolplug.catalog.schema_walk import pointer_part
from toolplug.config.nearest import name_hint
from toolplug.errors import ApiError, InvalidDefinition
from toolplug.parts.approvals.limits import MAX_DEFAULT_DEPTH, MAX_DEFAULTS

Rule = Mapping[str, object]

_ABOUT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), "string"),
    **dict.fromkeys(("items", "minItems", "maxItems", "uniqueItems"), "array"),
    **dict.fromkeys(("properties", "required", "additionalProperties"), "object"),
}
"""The type of values that a keyword is about; JSON Schema lets values of every other type pass."""
_ALONE = frozenset({"anyOf"})
_WORDS = frozenset({"title", "description"})
_KNOWN: Final = (*_ABOUT, "type", "const", "enum", *sorted(_ALONE), *sorted(_WORDS))
_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
# Null stands for "nothing": a limit on a number that may be absent is meant for the number.
_ALSO: Mapping[str, frozenset[str]] = {
    "number": frozenset({"number", "integer", "null"}),
    "string": frozenset({"string", "null"}),
    "array": frozenset({"array", "null"}),
    "object": frozenset({"object", "null"}),
}


def closed_rule(rule: Rule, names: Collection[str] | None) -> Schema:
    """Return the schema as it is applied: what it does not name is refused, what it names is required.

    `names` are those of the tool's parameters, None if it takes any. Raises `ApiError` for an unknown keyword, and for
    what is over the limits of a tool's schema.
    """
    try:
        Schema(rule)  # its size, before it is walked through
        schema = Schema(_closed_arguments(_close(rule, ""), names))
        schema.check()
    except InvalidDefinition as error:
        raise _invalid(str(error)) from None
    return schema


def _closed_arguments(closed: Rule, names: Collection[str] | None, at: str = "") -> Rule:
    """Return the closed schema of all arguments: it, and each of its choices, allows none that it does not name."""
    if "anyOf" in closed:
        choices = cast("list[Rule]", closed["anyOf"])
        return {
            "anyOf": [_closed_arguments(item, names, f"{at}/anyOf/{number}") for number, item in enumerate(choices)]
        }
    if not closed.keys() & {"properties", "const", "enum"}:
        return _closed_object({}, at)
    for name in as_object(closed.get("properties")):
        if names is not None and name not in names:
            raise _invalid(f"the tool has no argument {name!r}; {name_hint(name, [*names])}", at)
    return closed


def _invalid(text: str, at: str = "") -> ApiError:
    return ApiError("invalid_grant", f"the rule cannot be used: {at or '/'}: {text}", "grant.arguments")


def _close(rule: object, at: str) -> dict[str, object]:
    if rule is True and at:
        return {}
    if not isinstance(rule, Mapping):
        raise _invalid("not a JSON Schema: an object is needed", at)
    given = cast("Mapping[str, object]", rule)
    for keyword in given:
        if keyword not in _KNOWN:
            hint = name_hint(keyword, [*_KNOWN])
            raise _invalid(f"rules have no keyword {keyword!r}, and ignoring it could allow everything; {hint}", at)
    if "anyOf" in given:
        return _closed_choice(given, at)
    types = _types(given, at)
    closed = {keyword: value for keyword, value in given.items() if keyword not in _WORDS}
    if types:
        closed["type"] = types
    if "items" in given:
        closed["items"] = _close(given["items"], f"{at}/items")
    # An object that is given by its value is closed already.
    if "object" in types and not given.keys() & {"const", "enum"}:
        closed.update(_closed_object(given, at))
    return closed


def _closed_choice(given: Rule, at: str) -> dict[str, object]:
    choices = given["anyOf"]
    if given.keys() - _WORDS - _ALONE:
        raise _invalid("anyOf stands alone; write what holds for all of its schemas in each", at)
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
        raise _invalid("anyOf is a list of schemas", at)
    return {
        "anyOf": [_close(item, f"{at}/anyOf/{number}") for number, item in enumerate(cast("list[object]", choices))]
    }


def _types(given: Rule, at: str) -> list[str]:
    """Return the types that the schema allows, which its keywords imply where it names none; empty for every type."""
    about = {_ABOUT[keyword]: keyword for keyword in given if keyword in _ABOUT}
    if len(about) > 1:
        named = " and ".join(sorted(about))
        raise _invalid(f"its keywords are about {named}, so that each lets the other pass; use anyOf", at)
    named = given.get("type")
    types = [named] if isinstance(named, str) else named
    if types is None:
        return list(about)
    if not isinstance(types, list) or not types or not all(item in _TYPES for item in cast("list[object]", types)):
        raise _invalid(f"type is one or several of {', '.join(sorted(_TYPES))}", at)
    found = cast("list[str]", types)
    for kind, keyword in about.items():
        others = [item for item in found if item not in _ALSO[kind]]
        if others:
            raise _invalid(f"{keyword} lets every {others[0]} pass, which type allows; use anyOf", at)
    return found


def _closed_object(given: Rule, at: str) -> dict[str, object]:
    properties = given.get("properties", {})
    if not isinstance(properties, Mapping):
        raise _invalid("properties is an object of schemas", at)
    if given.get("additionalProperties", False) is not False:
        raise _invalid("additionalProperties can only be false: a rule names what it allows", at)
    named = cast("Mapping[str, object]", properties)
    required = given.get("required", [])
    if not isinstance(required, list) or not all(name in named for name in cast("list[object]", required)):
        raise _invalid("required is a list of names that properties has", at)
    closed = {name: _close(item, f"{at}/properties{pointer_part(name)}") for name, item in named.items()}
    return {"type": "object", "properties": closed, "required": [*named], "additionalProperties": False}


Matcher = Callable[[Mapping[str, object]], bool]
"""Says whether a call with these arguments, defaults filled in, is one that a rule allows."""
_Check = Callable[[object], bool | None]
_TEXTS: Final = frozenset({"const", "enum"})
_QUICK: Final = frozenset(
    {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
)
_EXACT = 2**53
"""Beyond it the validator compares integers as floats."""


# By hand, since a compiled schema takes 16 KiB: of 10,000 rules most were compiled again at each call, for 6 ms. Here
# are texts, flags, small integers and null; of all else the validator is asked.
def matcher_of(rule: Schema) -> Matcher:
    """Return what says as `rule.is_valid` does, and mostly faster, whether arguments are valid by a closed rule."""
    closed = rule.value
    properties = as_object(closed.get("properties"))
    is_closed = closed.get("additionalProperties") is False and [*properties] == closed.get("required")
    if not is_closed or closed.keys() - {"type", "properties", "required", "additionalProperties"}:
        return rule.is_valid
    checks: list[tuple[str, _Check]] = []
    for name, item in properties.items():
        check = _check_of(as_object(item))
        if check is None:
            return rule.is_valid
        checks.append((name, check))

    def matches(arguments: Mapping[str, object]) -> bool:
        if len(arguments) != len(checks):
            return False
        try:
            for name, check in checks:
                fits = check(arguments[name])
                if not fits:
                    return rule.is_valid(arguments) if fits is None else False
        except KeyError:
            return False
        return True

    return matches


def _check_of(rule: Mapping[str, object]) -> _Check | None:
    """Return a check of values by the schema of one argument, which returns None for a value that it cannot judge.

    Return None for a schema that it cannot judge by.
    """
    if not rule:
        return lambda _: True
    if rule.keys() & _TEXTS:
        given = [rule["const"]] if "const" in rule else cast("list[object]", rule["enum"])
        if len(rule) > 1 or not all(isinstance(value, str) for value in given):
            return None
        texts = frozenset(given)
        return lambda value: type(value) is str and value in texts
    if rule.keys() - _QUICK or not all(_is_small(value) for word, value in rule.items() if word != "type"):
        return None
    bounds = cast("Mapping[str, int]", rule)
    low = max(bounds.get("minimum", -_EXACT), bounds.get("exclusiveMinimum", -_EXACT) + 1)
    high = min(bounds.get("maximum", _EXACT), bounds.get("exclusiveMaximum", _EXACT) - 1)
    shortest, longest = bounds.get("minLength", 0), bounds.get("maxLength", _EXACT)
    kinds = cast("list[str]", rule.get("type", [*_TYPES]))
    is_text, is_flag, is_null = "string" in kinds, "boolean" in kinds, "null" in kinds
    is_number = "integer" in kinds or "number" in kinds

    def check(value: object) -> bool | None:
        if type(value) is str:
            return is_text and shortest <= len(value) <= longest
        if type(value) is int:
            return is_number and low <= value <= high if -_EXACT < value < _EXACT else None
        if type(value) is bool:
            return is_flag
        return is_null if value is None else None

    return check


def _is_small(value: object) -> bool:
    return type(value) is int and -_EXACT < value < _EXACT


def matcher_of_equal(given: Mapping[str, object]) -> Matcher:
    """Return what says whether arguments are these, but for the order of names: 1 is neither 1.0 nor true."""
    if all(value is None or type(value) is str for value in given.values()):
        return lambda arguments: arguments == given
    return lambda arguments: arguments == given and _is_same(arguments, given)


def _is_same(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        ours, theirs = cast("dict[str, object]", a), cast("dict[str, object]", b)
        return len(ours) == len(theirs) and all(
            name in theirs and _is_same(value, theirs[name]) for name, value in ours.items()
        )
    if isinstance(a, list):
        items, others = cast("list[object]", a), cast("list[object]", b)
        return len(items) == len(others) and all(map(_is_same, items, others))
    return repr(a) == repr(b) if isinstance(a, float) else a == b


class Defaults(NamedTuple):
    """The defaults of a tool's parameters, on one level: values, and those below by name and for items."""

    values: Mapping[str, object]
    below: Mapping[str, Defaults]
    items: Defaults | None
    unclear: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to fill in."""
        return self == _NONE

    def fill(self, value: object) -> object:
        """Return the value with its defaults. Raises `LookupError` where it is not clear which ones apply."""
        if isinstance(value, list):
            items = cast("list[object]", value)
            return items if self.items is None else [self.items.fill(item) for item in items]
        if not isinstance(value, dict):
            return value
        if self.unclear:
            raise LookupError
        filled = {**self.values, **cast("dict[str, object]", value)}
        for name, below in self.below.items():
            if name in filled:
                filled[name] = below.fill(filled[name])
        return filled


# By the text of the schema: tools are listed anew at each reload, with the same parameters.
@lru_cache(maxsize=1_024)
def defaults_of(parameters: bytes) -> Defaults | None:
    """Return the defaults of the tool with these parameters, the text of a schema; None for too many to fill in."""
    schema = cast("dict[str, object]", load_json(parameters))
    try:
        return _DefaultReader(schema).read(schema, 0)
    except OverflowError:
        return None


class _DefaultReader:
    """Reads the defaults of one schema within the limits."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self._schema = schema
        self._read = 0

    def read(self, node: object, depth: int) -> Defaults:
        self._read += 1
        if depth > MAX_DEFAULT_DEPTH or self._read > MAX_DEFAULTS:
            raise OverflowError
        found = self._resolve(node)
        properties, of_items = as_object(found.get("properties")), found.get("items")
        values: dict[str, object] = {}
        below: dict[str, Defaults] = {}
        for name, item in properties.items():
            if "default" in (known := as_object(item)):
                values[name] = known["default"]
            inner = self.read(item, depth + 1)
            if inner != _NONE:
                below[name] = inner
        items = None if of_items is None or of_items is True else self.read(of_items, depth + 1)
        branches = [key for key in ("anyOf", "oneOf", "allOf", "if", "dependentSchemas") if key in found]
        return Defaults(values, below, None if items == _NONE else items, bool(branches))

    def _resolve(self, node: object) -> Mapping[str, object]:
        """Return the schema that a reference or a choice with null stands for."""
        found = as_object(node)
        for _ in range(MAX_DEFAULT_DEPTH):
            target = found.get("$ref")
            choices = found.get("anyOf")
            if isinstance(target, str):
                found = self._target(target)
            elif isinstance(choices, list):
                # Of scalars and null no defaults come; one schema of an object or a list has those that apply.
                large = [item for item in cast("list[object]", choices) if not _is_scalar(item)]
                if len(large) > 1:
                    return found
                found = as_object(large[0] if large else None)
            else:
                return found
        raise OverflowError

    def _target(self, reference: str) -> Mapping[str, object]:
        node: object = self._schema
        for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            node = as_object(node).get(part.replace("~1", "/").replace("~0", "~"))
        if not isinstance(node, dict):
            raise OverflowError
        return as_object(cast("object", node))


_NONE = Defaults({}, {}, None, unclear=False)


def _is_scalar(item: object) -> bool:
    return as_object(item).get("type") in ("string", "integer", "number", "boolean", "null")
