"""Sanitising schemas from untrusted sources: known keywords, local references and no hidden characters.

Removals are reported, each with its own pointer; the rest of the schema stays. A hidden character is removed from a
text; in a name, a pattern or a constant, which are compared with values, it makes the tool invalid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, count
from typing import cast
from urllib.parse import unquote, urldefrag, urljoin

from toolplug.catalog.schema import MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES
from toolplug.catalog.schema_walk import (
    REFERENCES,
    SCHEMA_LISTS,
    SCHEMAS,
    SCHEMAS_BY_NAME,
    CircularReferences,
    Path,
    References,
    SchemaObject,
    at_pointer,
    pointer_part,
    walk_schemas,
)
from toolplug.catalog.text import clean_text, cleaned_json, hidden_character, in_one_line
from toolplug.catalog.validation.patterns import MAX_PATTERNS, MAX_PATTERNS_KIB, automaton_kib
from toolplug.errors import HiddenCharacter, InvalidDefinition
from toolplug.foreign.schema_repair import NOT_A_VALUE, is_address, repair_schema

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
    readable = (in_one_line(clean_text(part[:80])).encode(errors="replace").decode() for part in path)
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
        case "enum":
            return isinstance(value, list) and value != []
        case "required" | "examples":
            return isinstance(value, list)
        case "format" | "x-mcp-header" | "title" | "description" | "$comment" | "$id" | "$anchor" | "$dynamicAnchor":
            return isinstance(value, str)
        case _:
            return True


_MAX_ANNOTATION = 256
"""Characters under an `x-` keyword."""

_HOLDS_SEVERAL = SCHEMAS_BY_NAME | SCHEMA_LISTS | {"dependencies"}
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")

LEADS_OUT = "a reference that leads out of the schema, or nowhere"
CIRCULAR = "a reference that leads back to itself without going into the value"


def _remove_foreign_references(document: SchemaObject, at: Path, removed: RemovedParts) -> None:
    """Remove each reference that names no place in the document, and those that lead back to themselves."""
    every = list(walk_schemas(document, at))
    names = _Names(document, [place.schema for place in every])
    for schema, path in every:
        for keyword in REFERENCES & schema.keys():
            if not names.include(schema[keyword]):
                del schema[keyword]
                removed.add((*path, keyword), LEADS_OUT)
    paths = {id(schema): path for schema, path in every}
    try:
        References(document)
    except CircularReferences as error:
        for schema in error.holders:
            for keyword in REFERENCES & schema.keys():
                del cast("SchemaObject", schema)[keyword]
                removed.add((*paths[id(schema)], keyword), CIRCULAR)


class _Names:
    """The places that references in one document may name."""

    def __init__(self, document: SchemaObject, schemas: list[SchemaObject]) -> None:
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
        # With a second `$id` a fragment means another place below it; the compiler finds those that lead nowhere.
        if address or self._several_roots:
            return not address or self._absolute(address) in self._addresses
        if fragment.startswith("/"):
            return isinstance(at_pointer(self._document, fragment), dict | bool)
        return not fragment or fragment in self._anchors

    def _absolute(self, address: str) -> str:
        try:
            # `urljoin` raises for an address such as `http://[`.
            return urldefrag(urljoin(self._base, address)).url
        except ValueError:
            return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_copied(pointer: str) -> bool:
    """Return True if the place is under keywords that hold schemas, which are copied."""
    parts = iter((*pointer.split("/")[1:], ""))
    for keyword in parts:
        if keyword in _HOLDS_SEVERAL:
            next(parts, None)
        elif not (keyword in SCHEMAS or keyword in {"items", ""} or keyword.isdecimal()):
            return False
    return True


MAX_LOOKS = 4 * MAX_SCHEMA_NODES
"""Parts of a schema that are read, with those that are removed; a larger one is over its limits in any case."""


def sanitise_schema(raw: SchemaObject, at: Path, removed: RemovedParts) -> SchemaObject:
    """Return a copy of the schema with only known keywords, local references and clean texts.

    `at` is the path of the schema in reports. A keyword of another draft is converted where it can be, one that the
    metaschema refuses is removed. Raises `HiddenCharacter` for a name, pattern or constant that has one, and
    `InvalidDefinition` for a schema over the limits.
    """
    walk = _Walk(raw, at, removed)
    value = walk.document()
    repair_schema(value, at, removed.add)
    if walk.has_references:
        _remove_foreign_references(value, at, removed)
    return value


class _Walk:
    """Copies one schema, keyword by keyword. Raises `InvalidDefinition` past its limits."""

    def __init__(self, raw: SchemaObject, at: Path, removed: RemovedParts) -> None:
        self._raw = raw
        self._at = at
        self._cuts = removed
        self._left = MAX_LOOKS
        self._unknown: list[Path] = []
        self._moved: dict[str, str] = {}
        self._patterns = 0
        self._patterns_kib = 0
        self.has_references = False

    def document(self) -> SchemaObject:
        """Return the copy of the whole schema, with what it refers to under other keywords in its `$defs`.

        A schema that is a reference to such a place becomes what is there.
        """
        kept = self.schema(self._raw, self._at, 0)
        definitions: SchemaObject = {}
        # What is moved may refer to further places, which are then moved as well.
        while len(definitions) < len(self._moved):
            pointer, name = list(self._moved.items())[len(definitions)]
            target = at_pointer(self._raw, pointer)
            definitions[name] = self._inner(target, (*self._at, *pointer.split("/")[1:]), 0)
        for place in self._unknown:
            under = "".join(map(pointer_part, place[len(self._at) :]))
            if not any(pointer.startswith(f"{under}/") for pointer in self._moved):
                self._cuts.add(place, "no keyword of JSON Schema")
        if definitions:
            kept["$defs"] = {**cast("SchemaObject", kept.get("$defs", {})), **definitions}
        whole = definitions.get(str(kept.get("$ref")).removeprefix("#/$defs/"))
        if isinstance(whole, dict):
            target = cast("SchemaObject", whole)
            if kept.keys().isdisjoint(target.keys() - {"type"}):
                del kept["$ref"]
                return {**target, **kept}
        return kept

    def schema(self, raw: SchemaObject, at: Path, depth: int) -> SchemaObject:
        if depth > MAX_SCHEMA_DEPTH:
            raise InvalidDefinition(f"the schema is more than {MAX_SCHEMA_DEPTH} levels deep")
        kept: SchemaObject = {}
        for keyword, value in raw.items():
            self._look()
            place = (*at, str(keyword))
            if keyword in SCHEMAS_BY_NAME or keyword == "dependencies":
                self._put(kept, keyword, self._by_name(keyword, value, place, depth), place)
            elif keyword == "$ref":
                self._leaf(kept, keyword, self._reference(value), place)
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

    def _reference(self, value: object) -> object:
        """Return a reference, that to a place under no keyword as one to the `$defs` which it is moved to."""
        pointer = unquote(value[1:]) if isinstance(value, str) and value.startswith("#/") else ""
        if not pointer or _is_copied(pointer) or not isinstance(at_pointer(self._raw, pointer), dict | bool):
            return value
        if pointer not in self._moved:
            base = _NO_NAME.sub("_", pointer.rpartition("/")[2])[:60] or "schema"
            defined = self._raw.get("$defs")
            taken = {*(cast("SchemaObject", defined) if isinstance(defined, dict) else ()), *self._moved.values()}
            numbered = (f"{base}_{number}" for number in count(2))
            self._moved[pointer] = next(name for name in chain((base,), numbered) if name not in taken)
        return f"#/$defs/{self._moved[pointer]}"

    def _inner(self, value: object, at: Path, depth: int) -> object:
        if isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return self.schema(cast("SchemaObject", value), at, depth + 1)
        self._cuts.add(at, "no schema")
        return {}

    def _by_name(self, keyword: str, value: object, at: Path, depth: int) -> SchemaObject | None:
        if not isinstance(value, dict):
            return None
        kept: SchemaObject = {}
        for name, inner in cast("SchemaObject", value).items():
            self._look()
            place = (*at, str(name))
            self._check_visible(name, place)
            problem = self._pattern_problem(name) if keyword == "patternProperties" else ""
            if problem:
                self._cuts.add(place, f"a pattern that {problem}")
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

    def _leaf(self, kept: SchemaObject, keyword: str, value: object, at: Path) -> None:
        """Copy a keyword that holds no schema."""
        if keyword == "pattern":
            self._check_visible(value, at)
            problem = self._pattern_problem(value)
            self._put(kept, keyword, None if problem else value, at, problem)
        elif keyword == "$schema":
            is_draft = isinstance(value, str) and value.removesuffix("#") in DRAFTS
            self._put(kept, keyword, value if is_draft else None, at, "an unknown dialect")
        elif keyword not in LEAVES:
            self._keep_annotation(kept, keyword, value, at)
        elif keyword == "required" and isinstance(value, list):
            self._keep_required(kept, cast("list[object]", value), at)
        elif not fits(keyword, value) or (keyword == "$id" and not is_address(value)):
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

    def _keep_annotation(self, kept: SchemaObject, keyword: str, value: object, at: Path) -> None:
        """Keep a short value of a keyword `x-…`; any other keyword is unknown."""
        if not keyword.startswith("x-"):
            self._unknown.append(at)
        elif value is None or isinstance(value, bool | int | float | str):
            is_short = not isinstance(value, str) or len(value) <= _MAX_ANNOTATION
            if is_short and self._hidden_in([keyword, value]) is None:
                kept[keyword] = value

    def _keep_required(self, kept: SchemaObject, names: list[object], at: Path) -> None:
        texts = [name for name in names if isinstance(name, str)]
        if len(texts) < len(names):
            self._cuts.add(at, "names that are no text")
        self._check_visible(texts, at)
        kept["required"] = texts

    def _pattern_problem(self, pattern: object) -> str:
        """Return why a pattern cannot be kept, empty if it can; those of one schema share two limits."""
        size = automaton_kib(pattern) if isinstance(pattern, str) else None
        if size is None:
            return "takes more than linear time or 1 MiB, or is no pattern"
        if self._patterns == MAX_PATTERNS or self._patterns_kib + size > MAX_PATTERNS_KIB:
            return f"is over {MAX_PATTERNS} patterns, or {MAX_PATTERNS_KIB} KiB for all"
        self._patterns += 1
        self._patterns_kib += size
        return ""

    def _put(self, kept: SchemaObject, keyword: str, value: object, at: Path, why_not: str = NOT_A_VALUE) -> None:
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
                inner = cast("SchemaObject", node)
                waiting.extend(inner)
                waiting.extend(inner.values())
            elif isinstance(node, list):
                waiting.extend(cast("list[object]", node))
        return None

    def _look(self) -> None:
        # Counted while copying: a schema of a stranger is never walked whole before its size is known.
        self._left -= 1
        if self._left < 0:
            raise InvalidDefinition(f"the schema has more than {MAX_SCHEMA_NODES} nodes")
