"""A foreign JSON Schema made safe to compile, to keep and to show to a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import cast

import jsonschema_rs

from toolplug.catalog.cleaning import cleaned
from toolplug.catalog.schema import MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES, Schema
from toolplug.discovery import schema_keywords as known
from toolplug.discovery.cuts import Cuts, Path
from toolplug.discovery.local_references import empty_foreign_references
from toolplug.errors import InvalidDefinition

MAX_LOOKS = 4 * MAX_SCHEMA_NODES
"""So much of a schema is looked at, what is dropped included; a larger one is over its limits in any case."""

_ANY_OBJECT = Schema({"type": "object"})

Node = dict[str, object]


def sanitised_parameters(raw: object, cuts: Cuts) -> Schema:
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


def sanitised_output(raw: object, cuts: Cuts) -> Schema | None:
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


def _of_object(raw: Node, at: Path, cuts: Cuts) -> Schema:
    """Raises `InvalidDefinition` for what is past the limits, no JSON Schema, or not of objects."""
    removed = Cuts()
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

    def __init__(self, cuts: Cuts) -> None:
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
            if keyword in known.SCHEMAS_BY_NAME:
                self._put(kept, keyword, self._by_name(keyword, value, place, depth), place)
            elif keyword == "items":
                items = self._list(value, place, depth)
                kept[keyword] = self._inner(value, place, depth) if items is None else items
            elif keyword in known.SCHEMAS:
                kept[keyword] = self._inner(value, place, depth)
            elif keyword in known.SCHEMA_LISTS:
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
        elif keyword not in known.LEAVES:
            self._cuts.add(at, "no keyword of JSON Schema")
        elif not known.fits(keyword, value):
            self._put(kept, keyword, None, at)
        elif keyword in known.TEXTS:
            kept[keyword] = self._text(cast("str", value), at)
        elif keyword in known.VALUE_LISTS:
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
            self.has_references = self.has_references or keyword in known.REFERENCES

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
    return uri.removesuffix("#") in known.DRAFTS
