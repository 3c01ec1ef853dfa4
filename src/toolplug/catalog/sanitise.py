"""Sanitising schemas from untrusted sources: known keywords, local references and no hidden characters.

Removals are reported. A hidden character is removed from a text; in a name, a pattern or a constant, which are compared
with values, it makes the tool invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast
from urllib.parse import unquote, urldefrag, urljoin

from toolplug.catalog.schema import MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES
from toolplug.catalog.schema_walk import (
    REFERENCES,
    SCHEMA_LISTS,
    SCHEMAS,
    SCHEMAS_BY_NAME,
    Path,
    at_pointer,
    pointer_part,
    references,
    subschemas,
)
from toolplug.catalog.text import cleaned, cleaned_json, hidden_character, in_one_line
from toolplug.catalog.validation.patterns import automaton_kib
from toolplug.errors import HiddenCharacter, InvalidDefinition

MAX_LINES = 20
MAX_LINE = 300


class RemovedParts:
    """A report of removed parts: at most 20 lines `/path: why` in the order of removal, then the number of others.

    Paths come from the source: they are cleaned, and lines are cut to 300 characters.
    """

    def __init__(self, *, at_most: int = MAX_LINES) -> None:
        self._at_most = at_most
        self._lines: list[str] = []
        self._more = 0

    def add(self, path: Path, why: str) -> None:
        """Add one removal."""
        if len(self._lines) == self._at_most:
            self._more += 1
            return
        self._lines.append(f"{_pointer(path)}: {why}"[:MAX_LINE])

    def include(self, other: RemovedParts) -> None:
        """Add the removals of another report."""
        room = self._at_most - len(self._lines)
        self._lines += other._lines[:room]
        self._more += len(other._lines[room:]) + other._more

    def lines(self) -> tuple[str, ...]:
        """Return the lines of the report."""
        return (*self._lines, f"and {self._more} more") if self._more else tuple(self._lines)


def _pointer(path: Path) -> str:
    readable = (in_one_line(cleaned(part[:80])).encode(errors="replace").decode() for part in path)
    return "".join(map(pointer_part, readable)) or "/"


TEXTS = frozenset({"title", "description", "$comment"})
EXAMPLES = frozenset({"default", "examples"})
NAMES = frozenset({"required", "dependentRequired", "$anchor", "$dynamicAnchor"})
CONSTANTS = frozenset({"enum", "const"})
PLAIN = frozenset(
    {"type", "format", "readOnly", "writeOnly", "deprecated", "uniqueItems"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"}
    | {"contentEncoding", "contentMediaType", "$id", "$recursiveAnchor"}
    | {"x-mcp-header"}  # names the header of the argument, which clients of 2026-07-28 must send
)
"""Keywords that are kept if `fits` accepts their value."""

LEAVES = TEXTS | EXAMPLES | NAMES | CONSTANTS | REFERENCES | PLAIN
"""Keywords that hold no schema, except `pattern` and `$schema`."""

DRAFTS = frozenset(
    {
        "http://json-schema.org/schema",
        "http://json-schema.org/draft-04/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)
"""Values of `$schema` without a fragment."""

_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})


def fits(keyword: str, value: object) -> bool:
    """Return False for values of a keyword that servers often get wrong; compiling the schema finds the other ones."""
    match keyword:
        case "type":
            names = cast("list[object]", value) if isinstance(value, list) else [value]
            return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)
        case "required":
            return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[object]", value))
        case "enum" | "examples":
            return isinstance(value, list)
        case "format" | "x-mcp-header" | "title" | "description" | "$comment" | "$id" | "$anchor" | "$dynamicAnchor":
            return isinstance(value, str)
        case _:
            return True


_MAX_ANNOTATION = 256
"""Characters under an `x-` keyword."""

_PASSES = 8
"""An emptied schema may have held the target of another reference; after the last pass compiling finds the rest."""

Node = dict[str, object]


class _Place(NamedTuple):
    schema: Node
    at: Path


def _empty_foreign_references(document: Node, at: Path, cuts: RemovedParts) -> None:
    """Empty each schema of the document, itself included, that refers to no place in the document."""
    for _ in range(_PASSES):
        places = list(_places(document, at))
        holders = [place for place in places if not REFERENCES.isdisjoint(place.schema)]
        names = _Names(document, [place.schema for place in places])
        foreign = [place for place in holders if not all(map(names.include, references(place.schema)))]
        for place in foreign:
            cuts.add(place.at, "a reference that leads out of the schema, or nowhere")
            place.schema.clear()
        if not foreign:
            break


class _Names:
    """The places that references in one document may name."""

    def __init__(self, document: Node, schemas: list[Node]) -> None:
        self._document = document
        self._base = _text(document.get("$id"))
        identifiers = [_text(schema.get("$id")) for schema in schemas if schema is not document]
        self._several_roots = any(identifiers)
        self._addresses = {self._absolute(address) for address in [self._base, *identifiers] if address}
        self._anchors = {schema.get(key) for schema in schemas for key in ("$anchor", "$dynamicAnchor")}

    def include(self, reference: object) -> bool:
        if not isinstance(reference, str):
            return False
        address, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if address or self._several_roots:
            return not address or self._absolute(address) in self._addresses
        if fragment.startswith("/"):
            return isinstance(at_pointer(self._document, fragment), dict | bool)
        return not fragment or fragment in self._anchors

    def _absolute(self, address: str) -> str:
        try:
            return urldefrag(urljoin(self._base, address)).url
        except ValueError:
            return ""


def _places(document: Node, at: Path) -> Iterator[_Place]:
    """Yield every schema of the document, itself first."""
    waiting = [_Place(document, at)]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(
            _Place(cast("Node", inner), (*place.at, *path))
            for _, path, inner in subschemas(place.schema)
            if isinstance(inner, dict)
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


MAX_LOOKS = 4 * MAX_SCHEMA_NODES
"""Parts of a schema that are read, with those that are removed; a larger one is over its limits in any case."""


def sanitise_schema(raw: Node, at: Path, removed: RemovedParts) -> Node:
    """Return a copy of the schema with only known keywords, local references and clean texts.

    `at` is the path of the schema in reports. Raises `HiddenCharacter` for a name, pattern or constant that has one,
    and `InvalidDefinition` for a schema over the limits.
    """
    walk = _Walk(removed)
    value = walk.schema(raw, at, 0)
    if walk.has_references:
        _empty_foreign_references(value, at, removed)
    return value


class _Walk:
    """Copies one schema, keyword by keyword. Raises `InvalidDefinition` past its limits."""

    def __init__(self, cuts: RemovedParts) -> None:
        self._cuts = cuts
        self._left = MAX_LOOKS
        self.has_references = False

    def schema(self, raw: Node, at: Path, depth: int) -> Node:
        if depth > MAX_SCHEMA_DEPTH:
            raise InvalidDefinition(f"the schema is more than {MAX_SCHEMA_DEPTH} levels deep")
        kept: Node = {}
        for keyword, value in raw.items():
            self._look()
            place = (*at, str(keyword))
            if keyword in SCHEMAS_BY_NAME or keyword == "dependencies":
                self._put(kept, keyword, self._by_name(keyword, value, place, depth), place)
            elif keyword == "items":
                items = self._list(value, place, depth)
                kept[keyword] = self._inner(value, place, depth) if items is None else items
            elif keyword in SCHEMAS:
                kept[keyword] = self._inner(value, place, depth)
            elif keyword in SCHEMA_LISTS:
                self._put(kept, keyword, self._list(value, place, depth) or None, place)
            else:
                self._leaf(kept, keyword, value, place)
        return kept

    def _inner(self, value: object, at: Path, depth: int) -> object:
        if isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return self.schema(cast("Node", value), at, depth + 1)
        self._cuts.add(at, "no schema")
        return {}

    def _by_name(self, keyword: str, value: object, at: Path, depth: int) -> Node | None:
        if not isinstance(value, dict):
            return None
        kept: Node = {}
        for name, inner in cast("Node", value).items():
            self._look()
            place = (*at, str(name))
            self._check_visible(name, place)
            if keyword == "patternProperties" and automaton_kib(name) is None:
                self._cuts.add(place, "a pattern that takes more than linear time or 1 MiB, or is none")
            elif keyword == "dependencies" and isinstance(inner, list):
                self._check_visible(cast("object", inner), place)
                kept[name] = cast("object", inner)
            else:
                kept[name] = self._inner(inner, place, depth)
        return kept

    def _list(self, value: object, at: Path, depth: int) -> object:
        if not isinstance(value, list):
            return None
        inner = cast("list[object]", value)
        return [self._inner(item, (*at, str(index)), depth) for index, item in enumerate(inner)]

    def _leaf(self, kept: Node, keyword: str, value: object, at: Path) -> None:
        """Copy a keyword that holds no schema."""
        if keyword == "pattern":
            self._check_visible(value, at)
            is_bounded = isinstance(value, str) and automaton_kib(value) is not None
            why_not = "takes more than linear time or 1 MiB, or is no pattern"
            self._put(kept, keyword, value if is_bounded else None, at, why_not)
        elif keyword == "$schema":
            is_draft = isinstance(value, str) and value.removesuffix("#") in DRAFTS
            self._put(kept, keyword, value if is_draft else None, at, "an unknown dialect")
        elif keyword not in LEAVES:
            if not keyword.startswith("x-"):
                self._cuts.add(at, "no keyword of JSON Schema")
            elif value is None or isinstance(value, bool | int | float | str):
                is_short = not isinstance(value, str) or len(value) <= _MAX_ANNOTATION
                if is_short and self._hidden_in([keyword, value]) is None:
                    kept[keyword] = value
        elif not fits(keyword, value):
            self._put(kept, keyword, None, at)
        elif keyword in TEXTS or keyword in EXAMPLES:
            kept[keyword] = self._text(value, at)
        elif keyword in NAMES or keyword in CONSTANTS:
            self._check_visible(value, at)
            kept[keyword] = value
        elif self._hidden_in(value) is not None:
            self._cuts.add(at, "invisible characters")
        else:
            kept[keyword] = value
            self.has_references = self.has_references or keyword in REFERENCES

    def _put(
        self, kept: Node, keyword: str, value: object, at: Path, why_not: str = "not a value for this keyword"
    ) -> None:
        """Keep a value, or report the removal of None."""
        if value is None:
            self._cuts.add(at, why_not)
        else:
            kept[keyword] = value

    def _text(self, value: object, at: Path) -> object:
        if self._hidden_in(value) is None:
            return value
        self._cuts.add(at, "invisible characters")
        return cleaned_json(value)

    def _check_visible(self, value: object, at: Path) -> None:
        hidden = self._hidden_in(value)
        if hidden is not None:
            raise HiddenCharacter(f"{_pointer(at)} has the hidden character {hidden}; remove it from the definition")

    def _hidden_in(self, value: object) -> str | None:
        """Return the first hidden character of the texts in a value, keys included; None if there is none."""
        waiting = [value]
        while waiting:
            self._look()
            node = waiting.pop()
            if isinstance(node, str):
                hidden = hidden_character(node)
                if hidden is not None:
                    return hidden
            elif isinstance(node, Mapping):
                inner = cast("Node", node)
                waiting.extend(inner)
                waiting.extend(inner.values())
            elif isinstance(node, list):
                waiting.extend(cast("list[object]", node))
        return None

    def _look(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise InvalidDefinition(f"the schema has more than {MAX_SCHEMA_NODES} nodes")
