"""Walking a JSON Schema: the keywords that hold schemas, the values they are applied to, and JSON pointers.

Sanitising, counting references and pricing all use these tables, so that none of them overlooks a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

Node = Mapping[str, object]
Path = tuple[str, ...]
SchemaObject = dict[str, object]
"""A schema that is an object."""

SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SCHEMAS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems", "unevaluatedItems"}
    | {"contains", "not", "if", "then", "else", "contentSchema"}
)
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Keywords whose schemas are applied to the value itself."""
BELOW_VALUE = frozenset(
    {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"}
    | {"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"}
)
"""Keywords whose schemas are applied to the parts of the value."""

NO_VALUE: Node = {"not": {}}
"""What the schema `false` means, for the parts of the code that know objects only."""

_INDEX = re.compile("[0-9]{1,4}")


def subschemas(schema: Node) -> Iterator[tuple[str, Path, object]]:
    """Yield every value directly under a keyword that holds schemas: the keyword, the path to the value, the value.

    The path begins with the keyword. The value may be of any type.
    """
    for keyword, value in schema.items():
        if keyword in SCHEMAS_BY_NAME or keyword == "dependencies":
            if isinstance(value, Mapping):
                for name, inner in cast("Node", value).items():
                    yield keyword, (keyword, name), inner
        elif isinstance(value, list):
            if keyword in SCHEMA_LISTS or keyword == "items":
                for index, inner in enumerate(cast("list[object]", value)):
                    yield keyword, (keyword, str(index)), inner
        elif keyword in SCHEMAS or keyword == "items":
            yield keyword, (keyword,), value


class SchemaPlace(NamedTuple):
    """A schema inside a document, and its path."""

    schema: SchemaObject
    at: Path


def walk_schemas(document: SchemaObject, at: Path) -> Iterator[SchemaPlace]:
    """Yield every schema of the document, itself first."""
    waiting = [SchemaPlace(document, at)]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(
            SchemaPlace(cast("SchemaObject", inner), (*place.at, *path))
            for _, path, inner in subschemas(place.schema)
            if isinstance(inner, dict)
        )


def references(schema: Node) -> Iterator[object]:
    """Return the references of the schema itself, without those of schemas inside it; each may be of any type."""
    return (schema[keyword] for keyword in REFERENCES if keyword in schema)


def pointer_part(key: object) -> str:
    """Return a key or index as a part of a JSON pointer, with its `/` (RFC 6901)."""
    return "/" + str(key).replace("~", "~0").replace("/", "~1")


def at_pointer(root: object, pointer: str) -> object:
    """Return the part of a document that a JSON pointer (RFC 6901) names; None if there is none."""
    node = root
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = cast("Node", node).get(name)
        elif isinstance(node, list):
            items = cast("list[object]", node)
            node = items[int(name)] if _INDEX.fullmatch(name) and int(name) < len(items) else None
        else:
            return None
    return node
