"""The keywords of JSON Schema that a foreign schema may have, by what stands under them."""

from __future__ import annotations

from typing import cast

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
