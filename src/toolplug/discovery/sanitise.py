"""Sanitising tools of MCP servers: known keywords and local references only, clean texts, and a report of removals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, cast
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs

from toolplug.catalog.definition import (
    MAX_DESCRIPTION_BYTES,
    NO_HINTS,
    ToolDefinition,
    ToolHints,
    check_foreign_tool_name,
)
from toolplug.catalog.schema import MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES, Schema
from toolplug.catalog.text import cleaned, cleaned_description, in_one_line
from toolplug.discovery.record import FoundTool
from toolplug.errors import InvalidDefinition

MAX_LINES = 20
MAX_LINE = 300

Path = tuple[str, ...]


class RemovedParts:
    """Lines `/path: why`, in the order of removal; at most 20, and how many more there were.

    Paths are the server's own texts: they are cleaned and cut.
    """

    def __init__(self, *, at_most: int = MAX_LINES) -> None:
        self._at_most = at_most
        self._lines: list[str] = []
        self._more = 0

    def add(self, path: Path, why: str) -> None:
        """Report one removal."""
        if len(self._lines) == self._at_most:
            self._more += 1
            return
        pointer = "".join(f"/{_shown(part)}" for part in path)
        self._lines.append(f"{pointer or '/'}: {why}"[:MAX_LINE])

    def include(self, other: RemovedParts) -> None:
        """Report all that another report says."""
        room = self._at_most - len(self._lines)
        self._lines += other._lines[:room]
        self._more += len(other._lines[room:]) + other._more

    def lines(self) -> tuple[str, ...]:
        """The report."""
        return (*self._lines, f"and {self._more} more") if self._more else tuple(self._lines)


def _shown(part: str) -> str:
    readable = in_one_line(cleaned(part[:80])).encode(errors="replace").decode()
    return readable.replace("~", "~0").replace("/", "~1")


SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SCHEMAS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems", "unevaluatedItems"}
    | {"contains", "not", "if", "then", "else", "contentSchema"}
)
TEXTS = frozenset({"title", "description", "$comment"})
VALUES = frozenset({"default", "const"})
VALUE_LISTS = frozenset({"enum", "examples", "required"})
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
PLAIN = frozenset(
    {"type", "format", "dependentRequired", "readOnly", "writeOnly", "deprecated", "uniqueItems"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"}
    | {"contentEncoding", "contentMediaType", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"}
    | {"x-mcp-header"}  # says which header carries the argument; a client of 2026-07-28 must know
)
"""Kept as they are, where they are of the right kind."""

LEAVES = TEXTS | VALUES | VALUE_LISTS | REFERENCES | PLAIN
"""Those that hold no schema, but for `pattern` and `$schema`."""

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
"""What `$schema` may say, without a fragment."""

_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})


def fits(keyword: str, value: object) -> bool:
    """Can the value stand under a keyword that holds no schema?

    Decided for what servers often get wrong; whoever compiles the schema tells the rest.
    """
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


_ANNOTATION = 256
"""Characters of what stands under an `x-` keyword; any other value is dropped, which is no loss for a caller."""

_PASSES = 8
"""What is emptied may have held what others name; after so many times whatever compiles the schema tells."""

_INDEX = re.compile("[0-9]{1,4}")

Node = dict[str, object]


class _Place(NamedTuple):
    schema: Node
    at: Path


def empty_foreign_references(document: Node, at: Path, cuts: RemovedParts) -> None:
    """Empty each schema in the document, itself too, with a reference that does not lead to a place in it."""
    for _ in range(_PASSES):
        places = list(_places(document, at))
        holders = [place for place in places if not REFERENCES.isdisjoint(place.schema)]
        names = _Names(document, [place.schema for place in places])
        foreign = [place for place in holders if not all(map(names.lead_somewhere, _references(place.schema)))]
        for place in foreign:
            cuts.add(place.at, "a reference that leads out of the schema, or nowhere")
            place.schema.clear()
        if not foreign:
            break


class _Names:
    """What references of one document may name."""

    def __init__(self, document: Node, schemas: list[Node]) -> None:
        self._document = document
        self._base = _text(document.get("$id"))
        identifiers = [_text(schema.get("$id")) for schema in schemas if schema is not document]
        self._several_roots = any(identifiers)
        self._addresses = {self._absolute(address) for address in [self._base, *identifiers] if address}
        self._anchors = {schema.get(key) for schema in schemas for key in ("$anchor", "$dynamicAnchor")}

    def lead_somewhere(self, reference: object) -> bool:
        if not isinstance(reference, str):
            return False
        address, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if address or self._several_roots:
            return not address or self._absolute(address) in self._addresses
        if fragment.startswith("/"):
            return _found(self._document, fragment)
        return not fragment or fragment in self._anchors

    def _absolute(self, address: str) -> str:
        try:
            return urldefrag(urljoin(self._base, address)).url
        except ValueError:
            return ""


def _places(document: Node, at: Path) -> Iterator[_Place]:
    """Every schema in the document, itself first."""
    waiting = [_Place(document, at)]
    while waiting:
        place = waiting.pop()
        yield place
        for keyword, value in place.schema.items():
            waiting.extend(
                _Place(cast("Node", inner), (*place.at, *path))
                for path, inner in _inside(keyword, value)
                if isinstance(inner, dict)
            )


def _inside(keyword: str, value: object) -> Iterator[tuple[Path, object]]:
    """What stands under a keyword that holds schemas."""
    if keyword in SCHEMAS_BY_NAME or keyword == "dependencies":
        for name, inner in cast("Node", value).items():
            yield (keyword, name), inner
    elif isinstance(value, list):
        if keyword in SCHEMA_LISTS or keyword == "items":
            for index, inner in enumerate(cast("list[object]", value)):
                yield (keyword, str(index)), inner
    elif keyword in SCHEMAS or keyword == "items":
        yield (keyword,), value


def _references(schema: Node) -> list[object]:
    return [schema[keyword] for keyword in REFERENCES if keyword in schema]


def _found(document: Node, pointer: str) -> bool:
    node = cast("object", document)
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = cast("Node", node).get(name)
        elif isinstance(node, list) and _INDEX.fullmatch(name) and int(name) < len(cast("list[object]", node)):
            node = cast("list[object]", node)[int(name)]
        else:
            return False
    return isinstance(node, dict | bool)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


MAX_LOOKS = 4 * MAX_SCHEMA_NODES
"""So much of a schema is looked at, what is dropped included; a larger one is over its limits in any case."""

_ANY_OBJECT = Schema({"type": "object"})


def sanitised_parameters(raw: object, cuts: RemovedParts) -> Schema:
    """The schema of a tool's arguments; any object where this one cannot be kept."""
    at = ("inputSchema",)
    if not isinstance(raw, dict):
        cuts.add(at, "is no schema; any object is taken")
        return _ANY_OBJECT
    try:
        return _of_object(cast("Node", raw), at, cuts)
    except InvalidDefinition as error:
        cuts.add(at, f"{error}; any object is taken")
        return _ANY_OBJECT


def sanitised_output(raw: object, cuts: RemovedParts) -> Schema | None:
    """The schema of a tool's structured results; None where there is none, or it cannot be kept."""
    if raw is None:
        return None
    at = ("outputSchema",)
    if not isinstance(raw, dict):
        cuts.add(at, "is no schema")
        return None
    try:
        return _of_object(cast("Node", raw), at, cuts)
    except InvalidDefinition as error:
        cuts.add(at, str(error))
        return None


def _of_object(raw: Node, at: Path, cuts: RemovedParts) -> Schema:
    """Raises `InvalidDefinition` for what is past the limits, no JSON Schema, or not of objects."""
    removed = RemovedParts()
    walk = _Walk(removed)
    value = walk.schema(raw, at, 0)
    if walk.has_references:
        empty_foreign_references(value, at, removed)
    stated = value.get("type", "object")
    if stated != "object":
        if not isinstance(stated, list) or "object" not in stated:
            raise InvalidDefinition(f"is of type {stated!r:.40}, not object")
        removed.add((*at, "type"), "other types than object")
    schema = Schema(value | {"type": "object"} if "type" in value else {"type": "object"} | value)
    schema.check()
    cuts.include(removed)
    return schema


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
            if keyword in SCHEMAS_BY_NAME:
                self._put(kept, keyword, self._by_name(keyword, value, place, depth), place)
            elif keyword == "items":
                items = self._list(value, place, depth)
                kept[keyword] = self._inner(value, place, depth) if items is None else items
            elif keyword in SCHEMAS:
                kept[keyword] = self._inner(value, place, depth)
            elif keyword in SCHEMA_LISTS:
                self._put(kept, keyword, self._list(value, place, depth) or None, place)
            elif keyword == "dependencies":
                self._put(kept, keyword, self._dependencies(value, place, depth), place)
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
            if self._hides(name):
                self._cuts.add(place, "characters that nobody can see in a name")
            elif keyword == "patternProperties" and not is_linear(name):
                self._cuts.add(place, "a pattern that takes more than linear time, or is none")
            else:
                kept[name] = self._inner(inner, place, depth)
        return kept

    def _list(self, value: object, at: Path, depth: int) -> object:
        if not isinstance(value, list):
            return None
        inner = cast("list[object]", value)
        return [self._inner(item, (*at, str(index)), depth) for index, item in enumerate(inner)]

    def _dependencies(self, value: object, at: Path, depth: int) -> object:
        if not isinstance(value, dict):
            return None
        inner = cast("Node", value)
        return {
            name: cast("object", item) if isinstance(item, list) else self._inner(item, (*at, str(name)), depth)
            for name, item in inner.items()
            if not self._hides(name) and not self._hides(item)
        }

    def _leaf(self, kept: Node, keyword: str, value: object, at: Path) -> None:
        """Keep what holds no schema."""
        if keyword == "pattern":
            self._keep(kept, keyword, value, at, is_linear, "takes more than linear time, or is no pattern")
        elif keyword == "$schema":
            self._keep(kept, keyword, value, at, _is_draft, "an unknown dialect")
        elif keyword not in LEAVES:
            if not keyword.startswith("x-"):
                self._cuts.add(at, "no keyword of JSON Schema")
            elif not (isinstance(value, dict | list) or len(str(value)) > _ANNOTATION or self._hides([keyword, value])):
                kept[keyword] = value
        elif not fits(keyword, value):
            self._put(kept, keyword, None, at)
        elif keyword in TEXTS:
            kept[keyword] = self._text(cast("str", value), at)
        elif keyword in VALUE_LISTS:
            given = cast("list[object]", value)
            values = [item for item in given if not self._hides(item)]
            if len(values) < len(given):
                self._cuts.add(at, "values with characters that nobody can see")
            if values:
                kept[keyword] = values
        elif self._hides(value):
            self._cuts.add(at, "characters that nobody can see")
        else:
            kept[keyword] = value
            self.has_references = self.has_references or keyword in REFERENCES

    def _keep(
        self, kept: Node, keyword: str, value: object, at: Path, good: Callable[[str], bool], otherwise: str
    ) -> None:
        if isinstance(value, str) and good(value):
            kept[keyword] = value
        else:
            self._cuts.add(at, otherwise)

    def _put(self, kept: Node, keyword: str, value: object, at: Path) -> None:
        if value is None:
            self._cuts.add(at, "not a value for this keyword")
        else:
            kept[keyword] = value

    def _text(self, value: str, at: Path) -> str:
        text = cleaned(value)
        if text != value:
            self._cuts.add(at, "characters that nobody can see")
        return text

    def _hides(self, value: object) -> bool:
        """Does the value hold text with characters that nobody can see."""
        waiting = [value]
        while waiting:
            self._look()
            node = waiting.pop()
            if isinstance(node, str):
                if cleaned(node) != node:
                    return True
            elif isinstance(node, Mapping):
                inner = cast("Node", node)
                waiting.extend(inner)
                waiting.extend(inner.values())
            elif isinstance(node, list):
                waiting.extend(cast("list[object]", node))
        return False

    def _look(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise InvalidDefinition(f"the schema has more than {MAX_SCHEMA_NODES} nodes")


@lru_cache(maxsize=1_024)
def is_linear(pattern: str) -> bool:
    """Is it a pattern that takes time in proportion to the text, however it was meant."""
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, jsonschema_rs.ReferencingError):
        return False
    return True


def _is_draft(uri: str) -> bool:
    return uri.removesuffix("#") in DRAFTS


KIND = "mcp"

_HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint")
_LOOKED_AT = 8 * MAX_DESCRIPTION_BYTES
"""Characters of a description; what comes after so many cannot be kept, whatever is removed before it."""


def sanitised(raw: object, server: str) -> FoundTool:
    """The tool. Raises `InvalidDefinition` for what has no name that a tool may have."""
    if not isinstance(raw, dict):
        raise InvalidDefinition("a tool must be an object")
    given = cast("dict[str, object]", raw)
    name = given.get("name")
    if not isinstance(name, str):
        raise InvalidDefinition("name must be text", at="name")
    check_foreign_tool_name(name)
    cuts = RemovedParts()
    definition = ToolDefinition(
        name=name,
        description=_description(given.get("description"), cuts) or f"{server} tool: {name}",
        parameters=sanitised_parameters(given.get("inputSchema"), cuts),
        output_schema=sanitised_output(given.get("outputSchema"), cuts),
        hints=_hints(given.get("annotations"), cuts),
    )
    return FoundTool(definition.owned_by(KIND, server), cuts.lines())


def _description(raw: object, cuts: RemovedParts) -> str:
    """Empty where there is none."""
    at = ("description",)
    if raw is None:
        return ""
    if not isinstance(raw, str):
        cuts.add(at, "is no text")
        return ""
    looked_at = raw[:_LOOKED_AT]
    readable = looked_at.encode(errors="ignore").decode()
    seen = cleaned(readable)
    if seen != looked_at:
        cuts.add(at, "characters that nobody can see")
    text = cleaned_description(seen)
    if text != seen:
        cuts.add(at, "a heading that stands before a user's own notes")
    kept = text.encode()[:MAX_DESCRIPTION_BYTES].decode(errors="ignore")
    if kept != text or looked_at != raw:
        cuts.add(at, f"what is over {MAX_DESCRIPTION_BYTES} bytes")
    return kept if kept.strip() else ""


def _hints(raw: object, cuts: RemovedParts) -> ToolHints:
    """The hints that mean something here; others are left as they are, unread."""
    if raw is None:
        return NO_HINTS
    if not isinstance(raw, dict):
        cuts.add(("annotations",), "are no object")
        return NO_HINTS
    given = cast("dict[str, object]", raw)
    hints: list[bool | None] = []
    for key in _HINTS:
        value = given.get(key)
        hints.append(value if isinstance(value, bool) else None)
        if not isinstance(value, bool | None):
            cuts.add(("annotations", key), "is neither true nor false")
    read_only, idempotent, destructive = hints
    return ToolHints(read_only, idempotent, destructive)
