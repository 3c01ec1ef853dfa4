"""Walking a JSON Schema: which keywords hold schemas, where each is applied, and what a reference names.

Sanitising, counting references and pricing all use these tables, so that none of them overlooks a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

Node = Mapping[str, object]
Path = tuple[str, ...]

SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SCHEMAS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems", "unevaluatedItems"}
    | {"contains", "not", "if", "then", "else", "contentSchema"}
)
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Their schemas are applied to the value itself."""
BELOW_VALUE = frozenset(
    {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"}
    | {"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"}
)
"""Their schemas are applied to the parts of the value."""

_INDEX = re.compile("[0-9]{1,4}")


class Subschema(NamedTuple):
    """What stands in the place of a schema; `path` is the way there from the schema that has the keyword."""

    keyword: str
    path: Path
    value: object


def subschemas(schema: Node) -> Iterator[Subschema]:
    """Every schema directly under a keyword: an object, a boolean, or whatever its author put there."""
    for keyword, value in schema.items():
        if keyword in SCHEMAS_BY_NAME or keyword == "dependencies":
            if isinstance(value, Mapping):
                for name, inner in cast("Node", value).items():
                    yield Subschema(keyword, (keyword, name), inner)
        elif isinstance(value, list):
            if keyword in SCHEMA_LISTS or keyword == "items":
                for index, inner in enumerate(cast("list[object]", value)):
                    yield Subschema(keyword, (keyword, str(index)), inner)
        elif keyword in SCHEMAS or keyword == "items":
            yield Subschema(keyword, (keyword,), value)


def references(schema: Node) -> Iterator[object]:
    """The references that stand in the schema itself; one that is no text is none that can be followed."""
    return (schema[keyword] for keyword in REFERENCES if keyword in schema)


def at_pointer(root: object, pointer: str) -> object:
    """What a JSON pointer names in a document; None where it leads nowhere."""
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
