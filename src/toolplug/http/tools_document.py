"""The tools of a catalog as an OpenAPI document: one operation for each tool, and the schemas that it refers to.

A reference within the schema of a tool begins at that schema; in the document it begins at the document's root, where
every tool would have the same `$defs`. So definitions become `components/schemas` named by tool, and all references are
written anew. Documents that importers of other people read have no `$id`, no anchors and no dialect but 2020-12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from typing import Literal, NamedTuple, cast
from urllib.parse import quote, unquote

import orjson

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.exact_json import as_list, dump_json, load_own_json
from toolplug.catalog.render import describe, with_items
from toolplug.catalog.schema import Schema
from toolplug.catalog.schema_walk import (
    NO_VALUE,
    REFERENCES,
    Path,
    References,
    SchemaObject,
    at_pointer,
    pointer_part,
    subschemas,
)
from toolplug.foreign.schema_repair import repair_schema
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.threads import in_own_thread
from toolplug.signatures.described_arguments import inline_models

CALLED_AT = "/v1/tools/"
"""The path of a tool's operation, without its wire name."""

MAX_PARTS = 64
"""Catalogs, and parts that several catalogs share, whose operations are kept encoded."""

PARTS: SchemaObject = {
    "type": "array",
    "items": {"type": "object"},
    "description": "images, audio, links and resources",
}
TEXT_ANSWER: SchemaObject = {
    "type": "object",
    "properties": {"output": {"type": "string", "description": "the result as text"}, "parts": PARTS},
    "required": ["output"],
}
_TEXT_ANSWER = dump_json(TEXT_ANSWER)
REFUSAL: SchemaObject = {
    "description": "Why there is no result, in words",
    "content": {
        "application/json": {"schema": {"type": "object", "properties": {"status": {"type": "string"}, "error": {}}}}
    },
}
SECURITY: tuple[SchemaObject, ...] = ({"bearer": []}, {"apiKey": []})
SCHEMES: SchemaObject = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "an API key, or a JSON Web Token"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}

MAX_INLINED = 64
"""Definitions of a schema that is searched for those to inline, which takes the square of their number."""

_OTHER_SCOPES = (b'"$id"', b'"$anchor"', b'"$dynamicRef"', b'"$dynamicAnchor"', b'"$recursiveRef"')
_REFERENCE = re.compile(rb'"\$ref"\s*:\s*"(?:#/\$defs/([^"\\/~%]+)"|[^"]*")')
_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_DEFINITIONS = ("$defs", "definitions")
_DROPPED = ("$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema", "$vocabulary")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_ALSO_CLOSING = frozenset(
    {
        *(
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "if",
            "const",
            "enum",
            "patternProperties",
            "propertyNames",
            "maxProperties",
        ),
        *("dependentSchemas", "unevaluatedProperties"),
    }
)
"""Keywords that can refuse one more property, whatever `properties` says."""
_OF_A_FRAGMENT = "/~!$&'()*+,;=:@"
_ANY: SchemaObject = {"type": "object"}


class EncodedOperations(NamedTuple):
    """The operations of some tools, and their schemas, as members of JSON objects without the braces."""

    paths: bytes
    schemas: bytes


class ToolsDocument:
    """Documents of catalogs. The operations of a part that many catalogs share are encoded once."""

    def __init__(self) -> None:
        self._kept: LeastRecentlyUsed[int, tuple[Catalog, EncodedOperations]] = LeastRecentlyUsed(MAX_PARTS)

    async def write(self, catalog: Catalog, head: bytes, with_auth: bool) -> bytes:
        """Return the document of the tools that the catalog shows; `head` are its first members."""
        parts = catalog.shown.parts
        found = {id(part): kept[1] for part in parts if (kept := self._kept.get(id(part))) is not None}
        missing = [part for part in parts if id(part) not in found]
        if missing:
            # Hundreds of schemas with references take longer than the loop may be held.
            encoded = await in_own_thread(lambda: [operations_of(part.definitions()) for part in missing])
            for part, operations in zip(missing, encoded, strict=True):
                found[id(part)] = operations
                self._kept.put(id(part), (part, operations))
        return assemble(head, [found[id(part)] for part in parts], with_auth)


def assemble(head: bytes, parts: Sequence[EncodedOperations], with_auth: bool) -> bytes:
    """Return a document of these operations; `head` are its first members."""
    return b'{%b,"paths":{%b},"components":{"schemas":{%b},%b}}' % (
        head,
        b",".join(part.paths for part in parts if part.paths),
        b",".join(part.schemas for part in parts if part.schemas),
        _REST_WITH_AUTH if with_auth else _REST,
    )


_REST = b'"responses":' + orjson.dumps({"Refusal": REFUSAL})
_REST_WITH_AUTH = _REST + b',"securitySchemes":' + orjson.dumps(SCHEMES)


@cache
def _release() -> str:
    """Return the release; read once, as it is in a file."""
    return version("toolplug")


def head_of(server: str, with_auth: bool) -> bytes:
    """Return the first members of a document whose paths begin at this URL."""
    head: SchemaObject = {
        "openapi": "3.1.0",
        "info": {"title": "toolplug", "version": _release(), "description": "Tools that a model can call."},
        "servers": [{"url": server}],
    }
    if with_auth:
        head["security"] = SECURITY
    return orjson.dumps(head)[1:-1]


def operations_of(definitions: Iterable[ToolDefinition]) -> EncodedOperations:
    """Return the operations of the tools, in this order; each tool is encoded once."""
    paths: list[bytes] = []
    schemas: list[bytes] = []
    for definition in definitions:
        kept = definition.fragments.get("openapi")
        if kept is None:
            operation = _encode(definition)
            definition.fragments["openapi-schemas"] = operation.schemas
            kept = definition.fragments["openapi"] = operation.paths
        paths.append(kept)
        if more := definition.fragments["openapi-schemas"]:
            schemas.append(more)
    return EncodedOperations(b",".join(paths), b",".join(schemas))


def _encode(definition: ToolDefinition) -> EncodedOperations:
    components = _Components(definition.wire)
    prefix, dot, _ = definition.name.partition(".")
    needed = definition.parameters.value.get("required")
    described: SchemaObject = {"operationId": definition.wire}
    if definition.title:
        described["summary"] = definition.title
    if text := describe(definition):
        described["description"] = text
    if dot:
        described["tags"] = [prefix]
    body = components.add(definition.parameters, "arguments")
    path = b'"%b":{"post":{%b,"requestBody":{"required":%b,%b},"responses":{"200":{%b,%b},"default":{"$ref":%b}}}}' % (
        f"{CALLED_AT}{definition.wire}".encode(),
        orjson.dumps(described)[1:-1],
        b"true" if needed else b"false",
        _content(body),
        b'"description":"The result"',
        _content(_answer(definition.output_schema, components)),
        b'"#/components/responses/Refusal"',
    )
    return EncodedOperations(path, dump_json(components.schemas)[1:-1])


def _content(schema: bytes) -> bytes:
    return b'"content":{"application/json":{"schema":%b}}' % schema


def _answer(output: Schema | None, components: _Components) -> bytes:
    """Return the schema of a success: that of the tool itself where its results are objects, or that of a text.

    Such a tool answers text where its result is too long, or where its server gives no structured content.
    """
    if output is None:
        return dump_json(_ANY)
    document = load_own_json(output.text)
    kind = _type_of(document)
    if kind == "object":
        text = components.add(output, "result")
        # With its type, since FastMCP puts what is not said to be an object into one.
        return b'{"type":"object","anyOf":[%b,%b]}' % (
            _with_parts(text) if adds_parts(output) else text,
            _TEXT_ANSWER,
        )
    return dump_json(TEXT_ANSWER if isinstance(kind, str) else _ANY)


def adds_parts(output: Schema) -> bool:
    """Return whether the document describes `parts` beside the properties of these results, which allow no others."""
    root, text = output.value, output.text
    properties = root.get("properties", {})
    closed = root.get("additionalProperties", True) is not True and not root.keys() & _ALSO_CLOSING
    free = isinstance(properties, dict) and "parts" not in properties
    return closed and free and not any(reference in text for reference in (b'"$ref"', b'Ref"'))


def _with_parts(text: bytes) -> bytes:
    root = load_own_json(text)
    root["properties"] = {**root.get("properties", {}), "parts": PARTS}
    return dump_json(root)


def _type_of(document: SchemaObject) -> object:
    """Return the type of a schema, or of the definition that is all of it, as pydantic writes a recursive model."""
    if "type" in document:
        return document["type"]
    reference = document.get("$ref")
    named = at_pointer(document, unquote(reference[1:])) if isinstance(reference, str) else None
    return cast("SchemaObject", named).get("type") if isinstance(named, dict) else None


class _Components:
    """The components of one tool; `schemas` holds them by name."""

    def __init__(self, wire: str) -> None:
        self.schemas: SchemaObject = {}
        self._wire = wire

    def add(self, schema: Schema, what: str) -> bytes:
        """Return the schema as it is written at its place in the document; `what` names the whole of it."""
        text = with_items(schema)
        if b'"$' not in text:
            return text
        document = load_own_json(text)
        if _can_inline(text, document):
            document = inline_models(document)
        return dump_json(_MovedSchema(document, what, self._take, self.schemas).move())

    def _take(self, name: str) -> str:
        """Return a free name of a component, and mark it as taken."""
        free = base = f"{self._wire}.{_UNSAFE.sub('_', name)}"
        number = 1
        while free in self.schemas:
            number += 1
            free = f"{base}_{number}"
        self.schemas[free] = {}
        return free


def _can_inline(text: bytes, document: SchemaObject) -> bool:
    """Return whether each reference is to a whole definition of the document.

    Those are written in place where they can be, since Open WebUI follows no reference below `additionalProperties`.
    """
    held = document.get("$defs")
    definitions = cast("SchemaObject", held) if isinstance(held, dict) else {}
    if not 0 < len(definitions) <= MAX_INLINED or not all(isinstance(each, dict) for each in definitions.values()):
        return False
    found = cast("list[bytes]", _REFERENCE.findall(text))
    if document.get("$schema", _NEWEST) != _NEWEST or any(keyword in text for keyword in _OTHER_SCOPES):
        return False
    return all(name and name.decode() in definitions for name in found)


class _Place(NamedTuple):
    """A schema, and the schema with an `$id` around it, or the whole document, at which its references begin."""

    schema: SchemaObject
    resource: SchemaObject


class _MovedSchema:
    """One document of JSON Schema on its way into an OpenAPI document; it is changed in place."""

    def __init__(self, document: SchemaObject, what: str, take: Callable[[str], str], components: SchemaObject) -> None:
        self._references = References(document)  # before the repair, which removes the anchors of older drafts
        stated = document.pop("$schema", _NEWEST)
        if not isinstance(stated, str) or stated.removesuffix("#") != _NEWEST:
            # Tuples, and bounds that are true, as older drafts write them.
            repair_schema(document, (), lambda at, why: None)
        self._document = document
        self._what = what
        self._take = take
        self._components = components
        self._paths = {id(node): at for node, at in _mappings(document)}
        self._whole = ""
        self._names: dict[Path, str] = {
            (keyword, name): take(name)
            for keyword in _DEFINITIONS
            if isinstance(held := document.get(keyword), dict)
            for name in cast("SchemaObject", held)
        }

    def move(self) -> SchemaObject:
        """Return the schema without its definitions, which are components now."""
        # Looked up before anything changes: references lead through what is moved.
        changes = [(place.schema, self._targets(place)) for place in self._list_schemas()]
        for schema, targets in changes:
            for keyword in (*_DROPPED, *_REFERENCES):
                schema.pop(keyword, None)
            _apply(schema, targets)
        for (keyword, name), component in self._names.items():
            self._components[component] = _as_object(cast("SchemaObject", self._document[keyword])[name])
        for keyword in _DEFINITIONS:
            if isinstance(self._document.get(keyword), dict):
                del self._document[keyword]
        if not self._whole:
            return self._document
        self._components[self._whole] = self._document
        return {"$ref": _pointer(self._whole)}

    def _list_schemas(self) -> list[_Place]:
        """Return every schema of the document, also those that only a reference leads to."""
        places: list[_Place] = []
        seen: set[int] = set()
        self._add_inner(_Place(self._document, self._document), places, seen)
        for place in places:  # which grows meanwhile
            for found in self._named_by(place):
                self._add_inner(_Place(found, place.resource), places, seen)
        return places

    def _add_inner(self, outer: _Place, places: list[_Place], seen: set[int]) -> None:
        waiting = [outer]
        while waiting:
            schema, resource = waiting.pop()
            if id(schema) in seen:
                continue
            seen.add(id(schema))
            identifier = schema.get("$id")
            resource = schema if isinstance(identifier, str) and not identifier.startswith("#") else resource
            places.append(_Place(schema, resource))
            waiting += [
                _Place(cast("SchemaObject", inner), resource)
                for _, _, inner in subschemas(schema)
                if isinstance(inner, dict)
            ]

    def _named_by(self, place: _Place) -> Iterator[SchemaObject]:
        for keyword in _REFERENCES:
            found = self._find(place.schema.get(keyword), place.resource)
            if isinstance(found, dict):
                yield found

    def _targets(self, place: _Place) -> list[SchemaObject]:
        """Return the references of a schema as schemas; one that leads nowhere is left out, and so means any value."""
        given = [place.schema[keyword] for keyword in _REFERENCES if keyword in place.schema]
        found = [self._find(reference, place.resource) for reference in given]
        return [
            {"$ref": self._pointer_to(self._paths[id(each)])} if isinstance(each, dict) else {"not": {}}
            for each in found
            if each is not None
        ]

    def _find(self, reference: object, resource: SchemaObject) -> SchemaObject | Literal[False] | None:
        """Return the schema that a reference names, False for the one that nothing fits, None for none."""
        if not isinstance(reference, str):
            return None
        address, _, fragment = unquote(reference).partition("#")
        if address or (fragment and not fragment.startswith("/")):
            found: object = next(self._references.find_schemas(reference), None)
        else:
            found = at_pointer(resource, fragment)
        if found is False or found is NO_VALUE:
            return False
        # What the repair removed has no path any more.
        return (
            cast("SchemaObject", found)
            if isinstance(found, dict) and id(cast("SchemaObject", found)) in self._paths
            else None
        )

    def _pointer_to(self, at: Path) -> str:
        name = self._names.get(at[:2])
        if name is not None:
            return _pointer(name, at[2:])
        self._whole = self._whole or self._take(self._what)
        return _pointer(self._whole, at)


_REFERENCES = tuple(sorted(REFERENCES))


def _mappings(document: SchemaObject) -> Iterator[tuple[SchemaObject, Path]]:
    """Yield every object of the document, with its path."""
    waiting: list[tuple[object, Path]] = [(document, ())]
    while waiting:
        value, at = waiting.pop()
        if isinstance(value, dict):
            node = cast("SchemaObject", value)
            yield node, at
            waiting += [(inner, (*at, key)) for key, inner in node.items()]
        elif isinstance(value, list):
            waiting += [(inner, (*at, str(index))) for index, inner in enumerate(cast("list[object]", value))]


def _apply(schema: SchemaObject, targets: list[SchemaObject]) -> None:
    """Add the references to a schema: the one that it has, or each as a part of `allOf`."""
    if len(targets) == 1 and not (schema.keys() & targets[0].keys()):
        schema |= targets[0]
    elif targets:
        given = schema.get("allOf")
        schema["allOf"] = [*as_list(given), *targets]


def _as_object(schema: object) -> object:
    """Return the schema; importers know objects only, so one that is true or false becomes one."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return cast("SchemaObject", schema) if isinstance(schema, dict) else {}


def _pointer(component: str, at: Path = ()) -> str:
    inner = quote("".join(map(pointer_part, at)), safe=_OF_A_FRAGMENT)
    return f"#/components/schemas/{component}{inner}"
