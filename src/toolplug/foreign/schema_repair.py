"""Repairing a schema that its metaschema refuses: each keyword that it refuses is converted or removed, nothing else.

Servers mix drafts, and write numbers as texts. A model that sees the rest of the schema can call the tool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import orjson

from toolplug.catalog.schema_walk import (
    SCHEMA_LISTS,
    SCHEMAS,
    SCHEMAS_BY_NAME,
    Path,
    SchemaObject,
    subschemas,
    walk_schemas,
)
from toolplug.catalog.validation.compiled import compile_schema, is_json_schema
from toolplug.errors import InvalidDefinition

Remove = Callable[[Path, str], None]
"""Reports that what is at a path was removed, and why."""

NOT_A_VALUE = "not a value for this keyword"

_DRAFT_4 = "http://json-schema.org/draft-04/schema"
_OWN_TUPLES = frozenset({"", "http://json-schema.org/schema", "https://json-schema.org/draft/2020-12/schema"})
"""The dialects, without a fragment, in which a list of schemas is `prefixItems`; no dialect means the newest."""

_ANY: SchemaObject = {}
_NONE: list[object] = []

_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_ANY_BOUND: SchemaObject = {"minimum": 0, "maximum": 0}  # which exclusive bounds of draft 4 need next to them


def repair_schema(document: SchemaObject, at: Path, remove: Remove) -> None:
    """Convert or remove, in place, the keywords that the metaschema refuses; reports what is lost.

    Each schema in the document is checked once without those inside it, so the time grows with their number. A valid
    document is only checked as a whole.
    """
    # As a rule: then nothing is looked at a second time.
    if is_json_schema(document):
        return
    stated = document.get("$schema")
    dialect = stated.removesuffix("#") if isinstance(stated, str) else ""
    # A list: the repair removes keywords, and with them schemas that are still to come.
    for schema, path in list(walk_schemas(document, at)):
        if schema is not document and schema.pop("$schema", None) is not None:
            remove((*path, "$schema"), "a dialect inside a schema")
        _Repair(schema, path, dialect, remove).run()


def is_address(value: object) -> bool:
    """Return True if the value can be the `$id` of a schema."""
    try:
        compile_schema(orjson.dumps({"$id": value}))
    except InvalidDefinition:
        return False
    return True


def make_defaults_optional(document: SchemaObject) -> None:
    """Remove, in place, names from `required` whose property has a default: the server fills them in.

    Zod writes such properties as required, and the servers that do so accept calls without them.
    """
    for schema, _ in walk_schemas(document, ()):
        required, properties = schema.get("required"), schema.get("properties")
        if isinstance(required, list) and isinstance(properties, dict):
            own = cast("SchemaObject", properties)
            needed = [name for name in cast("list[str]", required) if not _has_default(own.get(name))]
            if needed:
                # Only names without a default stay required.
                schema["required"] = needed
            else:
                del schema["required"]  # an empty list is none in draft 4


def _has_default(schema: object) -> bool:
    return isinstance(schema, dict) and "default" in schema


class _Repair:
    """One schema, without those inside it."""

    def __init__(self, schema: SchemaObject, at: Path, dialect: str, remove: Remove) -> None:
        self._schema = schema
        self._at = at
        self._dialect = dialect
        self._remove = remove

    def run(self) -> None:
        self._convert()
        outlines = {keyword: _outline(keyword, value) for keyword, value in self._schema.items()}
        # All keywords at once: one call of the metaschema for a schema that is right but for those below it.
        if self._accepts(outlines):
            return
        for keyword, value in outlines.items():
            if self._accepts({keyword: value}):
                continue
            distinct = _distinct(value)
            if distinct is not None and self._accepts({keyword: distinct}):
                self._schema[keyword] = distinct
                self._remove((*self._at, keyword), "a value that it has twice")
            else:
                self._drop(keyword)

    def _accepts(self, outlines: SchemaObject) -> bool:
        return is_json_schema({**_ANY_BOUND, **outlines, **({"$schema": self._dialect} if self._dialect else {})})

    def _drop(self, keyword: str, why: str = NOT_A_VALUE) -> None:
        del self._schema[keyword]
        self._remove((*self._at, keyword), why)

    def _convert(self) -> None:
        """Write keywords of another draft as this one does."""
        for exclusive, bound in _BOUNDS:
            if exclusive in self._schema:
                self._convert_bound(exclusive, bound)
        if self._dialect == _DRAFT_4:
            self._convert_booleans()
        elif self._dialect in _OWN_TUPLES and isinstance(self._schema.get("items"), list):
            self._convert_tuple()

    def _convert_bound(self, exclusive: str, bound: str) -> None:
        """Of draft 4 and OpenAPI 3.0 is `true` next to the bound, of later drafts the bound itself."""
        schema = self._schema
        value, limit = schema[exclusive], schema.get(bound)
        if self._dialect == _DRAFT_4:
            if _is_number(value) and bound not in schema:
                schema[bound], schema[exclusive] = value, True
            elif value is True and not _is_number(limit):
                self._drop(exclusive)
        # `{"minimum": 3, "exclusiveMinimum": true}` is `{"exclusiveMinimum": 3}` today.
        elif value is True and _is_number(limit):
            schema[exclusive] = schema.pop(bound)
        elif value is False:
            del schema[exclusive]  # which says nothing

    def _convert_booleans(self) -> None:
        """Draft 4 has boolean schemas under two keywords only."""
        for keyword, path, inner in list(subschemas(self._schema)):
            if isinstance(inner, bool) and keyword not in ("additionalProperties", "additionalItems"):
                holder = self._schema if len(path) == 1 else self._schema[keyword]
                # Paths are texts, also those of lists.
                key = int(path[-1]) if isinstance(holder, list) else path[-1]
                cast("dict[str | int, object]", holder)[key] = {} if inner else {"not": {}}

    def _convert_tuple(self) -> None:
        """Write a list of schemas, one for each item, as `prefixItems`."""
        schema = self._schema
        if "prefixItems" in schema:
            self._drop("items")
            return
        first = schema.pop("items")
        if first:
            schema["prefixItems"] = first
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")


def _outline(keyword: str, value: object) -> object:
    """Return the value with an empty schema in place of each schema in it."""
    if keyword in SCHEMAS_BY_NAME:
        return _ANY
    if keyword == "dependencies":
        named = cast("SchemaObject", value).items()
        return {name: cast("object", inner) if isinstance(inner, list) else _ANY for name, inner in named}
    if isinstance(value, list) and (keyword in SCHEMA_LISTS or keyword == "items"):
        return [_ANY] if value else _NONE
    if (keyword in SCHEMAS or keyword == "items") and isinstance(value, dict):
        return _ANY
    return cast("object", value)


def _distinct(value: object) -> list[object] | None:
    """Return a list of texts without repetitions; None for other values."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[object]", value)):
        return None
    return list(dict.fromkeys(cast("list[object]", value)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
