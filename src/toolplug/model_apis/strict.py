"""Strict mode of model APIs: schemas in the form that they enforce, and arguments converted back from it.

Every object requires all its properties and takes no others; an optional one may be null instead. Constraints that the
mode does not support are left out, since the call is validated with the whole schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from toolplug.catalog.schema_walk import at_pointer

Node = Mapping[str, object]

_KEPT = frozenset(
    {"$ref", "$defs", "type", "enum", "const", "properties", "items", "anyOf", "title", "description", "pattern"}
    | {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
)
_LEFT_OUT = frozenset(
    {"default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$comment", "contentMediaType"}
    | {"contentEncoding", "minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "format"}
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_NULL = {"type": "null"}


class _NotStrict(Exception):
    """The schema has no strict form."""


def strict_schema(schema: Node) -> dict[str, object] | None:
    """Return the schema of a tool's arguments in strict form; None if it has none.

    A schema has none if it takes any property or any value (a mapping, a parameter without a type), or has a keyword
    that changes the form of a value and is not supported (`allOf`, `not`, `if`, `prefixItems`, …).
    """
    try:
        strict = _strict(schema)
    except _NotStrict:
        return None
    # The root must be an object; a union is refused there.
    return strict if strict.get("type") == "object" else None


def without_nulls(schema: Node, value: object) -> object:
    """Return arguments in strict form without the nulls of optional properties; `schema` is the original one."""
    return _without_nulls(schema, value, schema)


def _strict(schema: object) -> dict[str, object]:
    if not isinstance(schema, Mapping):
        raise _NotStrict
    node = dict(cast("Node", schema))
    # The mode has no `oneOf`. The call is validated with the original schema, so that exactly one still holds.
    if "oneOf" in node and "anyOf" not in node:
        node["anyOf"] = node.pop("oneOf")
    strict: dict[str, object] = {name: value for name, value in node.items() if name in _KEPT}
    if node.keys() - _KEPT - _LEFT_OUT - {"required", "additionalProperties"}:
        raise _NotStrict
    if node.get("format") in _FORMATS:
        strict["format"] = node["format"]
    if "$ref" in node and len(strict) > len({"$ref", "$defs"} & strict.keys()):
        strict["anyOf"] = [{"$ref": strict.pop("$ref")}]  # strict mode allows no other keyword next to it
    if "$defs" in node:
        strict["$defs"] = {name: _strict(inner) for name, inner in _mapping(node["$defs"])}
    if "anyOf" in strict:
        strict["anyOf"] = [_strict(inner) for inner in cast("list[object]", strict["anyOf"])]
    types = _types(node)
    if "object" in types:
        strict |= _strict_object(node)
    if "array" in types:
        strict["items"] = _strict(node.get("items"))
    if not types and not strict.keys() & {"$ref", "anyOf", "enum", "const"}:
        raise _NotStrict
    return strict


def _strict_object(node: Node) -> dict[str, object]:
    if "properties" not in node or isinstance(node.get("additionalProperties"), Mapping):
        raise _NotStrict
    required = cast("list[str]", node.get("required", []))
    properties: dict[str, object] = {}
    for name, inner in _mapping(node["properties"]):
        strict = _strict(inner)
        properties[name] = strict if name in required else _nullable(strict)
    # A required property that is not described would be forbidden by the strict form.
    if set(required) - properties.keys():
        raise _NotStrict
    return {"properties": properties, "required": [*properties], "additionalProperties": False}


def _nullable(strict: dict[str, object]) -> dict[str, object]:
    types = _types(strict)
    if "null" in types or _NULL in cast("list[object]", strict.get("anyOf", ())):
        return strict
    if types and "enum" not in strict and "const" not in strict:
        return {**strict, "type": [*types, "null"]}
    about = {name: strict[name] for name in ("title", "description") if name in strict}
    inner = {name: value for name, value in strict.items() if name not in about}
    branches = cast("list[object]", inner["anyOf"]) if inner.keys() == {"anyOf"} else [inner]
    return {**about, "anyOf": [*branches, _NULL]}


def _types(node: Node) -> list[str]:
    given = node.get("type", [])
    return [given] if isinstance(given, str) else cast("list[str]", given)


def _mapping(value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise _NotStrict
    yield from cast("Node", value).items()


def _without_nulls(schema: object, value: object, root: Node) -> object:
    if isinstance(value, list):
        items = _resolve(schema, cast("object", value), root).get("items")
        return [_without_nulls(items, item, root) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    given = cast("dict[str, object]", value)
    node = _resolve(schema, given, root)
    properties, required = cast("Node", node.get("properties", {})), cast("list[str]", node.get("required", []))
    return {
        name: _without_nulls(properties.get(name), item, root)
        for name, item in given.items()
        if item is not None or name in required or _takes_null(properties.get(name), root)
    }


def _takes_null(schema: object, root: Node) -> bool:
    return schema is None or any(
        "null" in _types(node) or None in cast("list[object]", node.get("enum", ())) or node.get("const", 0) is None
        for node in _alternatives(schema, root)
    )


def _resolve(schema: object, value: object, root: Node) -> Node:
    """Return the alternative for the value: the one with exactly its properties, else the first of its type."""
    wanted = "array" if isinstance(value, list) else "object"
    fitting = [node for node in _alternatives(schema, root) if wanted in _types(node)]
    for node in fitting:
        if isinstance(value, dict) and cast("Node", node.get("properties", {})).keys() == value.keys():
            return node
    return fitting[0] if fitting else {}


def _alternatives(schema: object, root: Node) -> Iterator[Node]:
    """Yield the schema, the targets of its references and the members of its unions; each reference once."""
    waiting, seen = [schema], set[str]()
    for item in waiting:
        if not isinstance(item, Mapping):
            continue
        node = cast("Node", item)
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#") and reference not in seen:
            seen.add(reference)
            waiting.append(at_pointer(root, reference[1:]))
        for union in ("anyOf", "oneOf"):
            waiting += cast("list[object]", node.get(union, ()))
        yield node
