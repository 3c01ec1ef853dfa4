"""Sanitising tools from untrusted sources such as MCP servers: valid definitions, and reports of removed parts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import cast

import orjson

from toolplug.catalog.definition import (
    MAX_DESCRIPTION_BYTES,
    MAX_TITLE_BYTES,
    NO_HINTS,
    ToolDefinition,
    ToolHints,
    check_foreign_tool_name,
    check_provider_tool_name,
)
from toolplug.catalog.exact_json import as_list, as_object
from toolplug.catalog.schema import MAX_SCHEMA_NODES, Schema
from toolplug.catalog.schema_walk import Path, SchemaObject
from toolplug.catalog.text import clean_text, cleaned_description, cleaned_json, in_one_line
from toolplug.errors import HiddenCharacter, InvalidDefinition
from toolplug.foreign.sanitise import RemovedParts, sanitise_schema
from toolplug.foreign.schema_repair import make_defaults_optional

MAX_ICONS = 8
MAX_ICON_BYTES = 16 * 1024
# No `http:`, whose pictures anyone on the way could replace, and no `data:text/html`, which would be a page.
_ICON = re.compile(r"(https://|data:image/)[!-~]+")
MAX_META_BYTES = 16 * 1024
"""Of the `_meta` of one tool, prompt or resource, as JSON."""
_OWN_META = ("io.modelcontextprotocol/", "toolplug/")
"""Beginnings of keys that speak of the server that lists an entry, which is this one to its own clients."""
_ANY_OBJECT = Schema({"type": "object"})
_PARTS = ("properties", "$defs", "definitions")
"""The keywords of the parts that a schema over the limits can do without."""
_MAX_HEAD = 1024
"""Bytes of a description that such a part keeps."""
_HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint")
# Cleaning is linear, but a server may send megabytes for each of thousands of tools.
_LOOKED_AT = 8 * MAX_DESCRIPTION_BYTES
"""Characters of a description that are read; later ones are always over the limit."""


def sanitise_tool(raw: object, source: str) -> tuple[ToolDefinition, tuple[str, ...]]:
    """Return the definition for one value of a server's list, and a line `/path: why` for each removed part.

    Raises `InvalidDefinition` if it has no valid name.
    """
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
        description=_description(given.get("description"), cuts) or f"{source} tool: {name}",
        parameters=_parameters(given.get("inputSchema"), cuts),
        output_schema=_output_schema(given.get("outputSchema"), "outputSchema", cuts),
        hints=_hints(given.get("annotations"), cuts),
        title=_title(given),
        icons=tuple(icons_of(given.get("icons"))),
        meta=_meta(given.get("_meta"), cuts),
    )
    return definition, cuts.lines()


def _meta(raw: object, cuts: RemovedParts) -> dict[str, object]:
    """Return the `_meta` of a tool for MCP clients, such as the address of its view; what is too large is reported."""
    meta = meta_of(raw)
    if meta is None:
        cuts.add(("_meta",), f"is no object of at most {MAX_META_BYTES} bytes of JSON")
    return meta or {}


def _title(given: dict[str, object]) -> str:
    """Return the title of a tool, which before 2025-06-18 was among its annotations."""
    titles = (given.get("title"), as_object(given.get("annotations")).get("title"))
    return next((title for raw in titles if (title := in_one_line(bounded_text(raw, MAX_TITLE_BYTES)))), "")


def _parameters(raw: object, cuts: RemovedParts) -> Schema:
    """Return the schema of arguments without what cannot be kept, which is reported. Raises `HiddenCharacter`.

    Of a schema over the limits the largest parts are any value of their type: the model still sees the others.
    """
    given = cast("SchemaObject", raw) if isinstance(raw, dict) else {}
    reason = "" if isinstance(raw, dict) else "is no schema"
    for outlined in () if reason else _largest(given):
        try:
            schema = _of_object(_outline(given, outlined), ("inputSchema",), cuts, defaults_are_optional=True)
        # Not repaired: a name or pattern that looks like another one is an attack, not a mistake.
        except HiddenCharacter:
            raise
        except InvalidDefinition as error:
            reason = reason or str(error)
        else:
            for part in sorted(outlined):
                cuts.add(("inputSchema", *part), f"{reason}; this part is any value of its type")
            return schema
    cuts.add(("inputSchema",), f"{reason}; any object is taken")
    return _ANY_OBJECT


def _largest(schema: SchemaObject) -> Iterator[frozenset[Path]]:
    """Yield the paths of no part of a schema, then of its largest 1, 2, 4 … parts, at last of all."""
    yield frozenset()
    parts = [(keyword, name) for keyword in _PARTS for name in as_object(schema.get(keyword))]
    parts.sort(key=lambda part: _size(as_object(schema[part[0]])[part[1]]), reverse=True)
    count = 1
    while len(parts) <= MAX_SCHEMA_NODES and count < 2 * len(parts):
        yield frozenset(parts[:count])
        count *= 2


def _size(value: object) -> int:
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:  # nested too deeply, or no JSON
        return sys.maxsize


def _outline(schema: SchemaObject, parts: frozenset[Path]) -> SchemaObject:
    """Return the schema with the type and description alone of some of its parts."""
    made = dict(schema)
    for keyword in {keyword for keyword, _ in parts}:
        held = as_object(schema[keyword])
        made[keyword] = {name: _head(inner) if (keyword, name) in parts else inner for name, inner in held.items()}
    return made


def _head(schema: object) -> SchemaObject:
    given = as_object(schema)
    return {key: given[key] for key in ("type", "description") if key in given and _size(given[key]) <= _MAX_HEAD}


def _output_schema(raw: object, key: str, cuts: RemovedParts) -> Schema | None:
    """Return the schema of results; None if there is none, or it cannot be kept. Raises `HiddenCharacter`."""
    if raw is None:
        return None
    try:
        if not isinstance(raw, dict):
            raise InvalidDefinition("is no schema")
        return _of_object(cast("dict[str, object]", raw), (key,), cuts)
    except HiddenCharacter:
        raise
    except InvalidDefinition as error:
        cuts.add((key,), str(error))
        return None


def _of_object(raw: SchemaObject, at: Path, cuts: RemovedParts, *, defaults_are_optional: bool = False) -> Schema:
    """Return the sanitised schema. Raises `InvalidDefinition` if it is over the limits or not of objects."""
    removed = RemovedParts()
    value = sanitise_schema(raw, at, removed)
    if defaults_are_optional:
        make_defaults_optional(value)
    stated = value.get("type", "object")
    if stated != "object":
        if not isinstance(stated, list) or "object" not in stated:
            raise InvalidDefinition(f"is of type {stated!r:.40}, not object")
        removed.add((*at, "type"), "other types than object")
    # The key keeps its place, or comes first: models read schemas in the order of their text.
    schema = Schema(value | {"type": "object"} if "type" in value else {"type": "object"} | value)
    schema.check()
    cuts.include(removed)
    return schema


def foreign_definition(
    *,
    name: str,
    description: str,
    parameters: dict[str, object],
    output_schema: dict[str, object] | None = None,
    hints: ToolHints = NO_HINTS,
) -> tuple[ToolDefinition, tuple[str, ...]]:
    """Return a sanitised definition of a tool from an untrusted source, and a line `/path: why` for each removed part.

    For providers whose tools come from documents of others. Schemas keep the keywords of JSON Schema, references within
    themselves and patterns of linear time; texts lose invisible characters; the description is cut at 8 KiB. An output
    schema that cannot be kept is left out.

    Raises `InvalidDefinition` if a provider's tool may not have the name, or the parameters are not a schema of an
    object, are over the limits (docs/reference/limits.md), or have a hidden character in a name, pattern or constant.
    """
    check_provider_tool_name(name)
    removed = RemovedParts()
    definition = ToolDefinition(
        name=name,
        description=_description(description, removed),
        parameters=_of_object(parameters, ("parameters",), removed),
        output_schema=_output_schema(output_schema, "output_schema", removed),
        hints=hints,
    )
    return definition, removed.lines()


def _description(raw: object, cuts: RemovedParts) -> str:
    """Return the cleaned description; empty if there is none."""
    at = ("description",)
    if raw is None:
        return ""
    if not isinstance(raw, str):
        cuts.add(at, "is no text")
        return ""
    looked_at = raw[:_LOOKED_AT]
    # Drops lone surrogates, which no JSON text of ours could carry.
    readable = looked_at.encode(errors="ignore").decode()
    seen = clean_text(readable)
    if seen != looked_at:
        cuts.add(at, "invisible characters")
    text = cleaned_description(seen)
    if text != seen:
        cuts.add(at, "a heading of a user's notes")
    # `ignore` drops the half of a character that the cut may leave.
    kept = text.encode()[:MAX_DESCRIPTION_BYTES].decode(errors="ignore")
    if kept != text or looked_at != raw:
        cuts.add(at, f"what is over {MAX_DESCRIPTION_BYTES} bytes")
    return kept if kept.strip() else ""


def _hints(raw: object, cuts: RemovedParts) -> ToolHints:
    """Return the hints that toolplug knows; others are ignored."""
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


def icons_of(raw: object) -> list[dict[str, object]]:
    """Return the valid icons of a list: pictures over HTTPS or in a `data:` URL, at most eight and 16 KiB together."""
    icons: list[dict[str, object]] = []
    room = MAX_ICON_BYTES
    for item in as_list(raw)[:MAX_ICONS]:
        given = as_object(item)
        source = given.get("src")
        # The length first: the pattern would read megabytes.
        if not isinstance(source, str) or len(source) > room or not _ICON.fullmatch(source):
            continue
        room -= len(source)
        icon: dict[str, object] = {"src": source}
        if mime_type := bounded_text(given.get("mimeType"), MAX_TITLE_BYTES):
            icon["mimeType"] = mime_type
        if sizes := as_list(given.get("sizes"))[:MAX_ICONS]:
            icon["sizes"] = [bounded_text(size, MAX_TITLE_BYTES) for size in sizes]
        if given.get("theme") in ("light", "dark"):
            icon["theme"] = given["theme"]
        icons.append(icon)
    return icons


def meta_of(raw: object) -> dict[str, object] | None:
    """Return the cleaned `_meta` of an entry, without keys of the protocol and of toolplug.

    Empty if there is none; None if it is no object, or too large or too deep.
    """
    given: object = {} if raw is None else raw
    if not isinstance(given, dict):
        return None
    meta = {key: value for key, value in cast("dict[str, object]", given).items() if not key.startswith(_OWN_META)}
    try:
        if len(orjson.dumps(meta)) > MAX_META_BYTES:
            return None
    except orjson.JSONEncodeError:
        return None
    return cast("dict[str, object]", cleaned_json(meta))


def bounded_text(raw: object, limit: int) -> str:
    """Return the cleaned text, cut to so many bytes; empty if it is no text."""
    if not isinstance(raw, str):
        return ""
    # As for descriptions: at most so much is read, and lone surrogates are dropped.
    readable = raw[: 8 * limit].encode(errors="ignore").decode()
    return cleaned_description(clean_text(readable)).encode()[:limit].decode(errors="ignore").strip()
