"""Listings of tools in the five dialects of model APIs; each tool is encoded once for each dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Literal, NamedTuple, cast

import orjson

from toolplug.catalog.definition import NO_HINTS, SEARCH_SOURCE, SEARCH_TOOLS, Note, ToolDefinition, ToolHints
from toolplug.catalog.exact_json import dump_json, load_own_json
from toolplug.catalog.schema import Schema
from toolplug.catalog.schema_walk import walk_schemas
from toolplug.catalog.text import NOTES_HEADING, in_one_line

Dialect = Literal["chat", "responses", "anthropic", "gemini", "mcp"]


def listing(definitions: Iterable[ToolDefinition], dialect: Dialect, *, searchable: bool = False) -> bytes:
    """Return a JSON array of the tools in one dialect, in this order. Raises `ValueError` for an unknown dialect.

    If they are `searchable`, deferred tools are marked in the dialects of APIs that search themselves, after the others
    and with the search tool of the API instead of ours; in the other dialects they are left out.
    """
    encode = _DIALECTS.get(dialect)
    if encode is None:
        near = get_close_matches(dialect, _DIALECTS, 1)
        hint = f" (nearest: {near[0]!r})" if near else ""
        raise ValueError(f"no dialect {dialect!r}; there are {', '.join(map(repr, _DIALECTS))}{hint}")
    parts: list[bytes] = []
    deferred: list[ToolDefinition] = []
    native = _NATIVE.get(dialect)
    for definition in definitions:
        if searchable and definition.deferred:
            deferred.append(definition)
            continue
        if searchable and native is not None and definition.ref.source == SEARCH_SOURCE:
            parts += [native.search] if definition.name == SEARCH_TOOLS else []
            continue
        kept = definition.fragments.get(dialect)
        if kept is None:
            kept = definition.fragments[dialect] = encode(definition)
        parts.append(kept)
    if native is not None:
        parts += native.deferred(deferred)
    return b"[%b]" % b",".join(parts)


def fragment(definition: ToolDefinition, dialect: Dialect) -> bytes:
    """Return one tool in a dialect, always the same bytes object. Raises `ValueError` for an unknown dialect."""
    listing((definition,), dialect)
    return definition.fragments[dialect]


def describe(definition: ToolDefinition) -> str:
    """Return the description with the section of notes after it, if there are any (docs/reference/toolsets.md)."""
    if not definition.notes:
        return definition.description
    section = notes_section(definition.notes)
    return f"{definition.description}\n\n{section}" if definition.description else section


def notes_section(notes: Iterable[Note]) -> str:
    """Return the notes as Markdown, a line for each, under their heading."""
    lines = "\n".join(f"• **{note.name}**: {in_one_line(note.text)}" for note in notes)
    return f"{NOTES_HEADING}\n\n{lines}"


def _chat(definition: ToolDefinition) -> bytes:
    return b'{"type":"function","function":' + _function(definition) + b"}"


def _responses(definition: ToolDefinition) -> bytes:
    return b'{"type":"function",' + _function(definition)[1:-1] + b',"strict":false}'


def _function(definition: ToolDefinition, parameters: bytes = b"parameters") -> bytes:
    """Return name, description and schema for a model, the last under this key; a wire name needs no escapes."""
    return _with_schema(definition, parameters, with_items(definition.parameters))


def _with_schema(definition: ToolDefinition, key: bytes, schema: bytes) -> bytes:
    # `encode`, not `dumps`: a wire name has no character that JSON escapes.
    name, description = definition.wire.encode(), orjson.dumps(describe(definition))
    return b'{"name":"%b","description":%b,"%b":%b}' % (name, description, key, schema)


def with_items(schema: Schema) -> bytes:
    """Return the JSON of the schema with `items` for each array: model APIs refuse a whole request without them."""
    if b'"array"' not in schema.text:
        return schema.text
    value = load_own_json(schema.text)
    incomplete = [each for each, _ in walk_schemas(value, ()) if _lacks_items(each)]
    for each in incomplete:
        each["items"] = {}
    return dump_json(value) if incomplete else schema.text


def _lacks_items(schema: Mapping[str, object]) -> bool:
    kinds = schema.get("type")
    is_array = "array" in cast("list[object]", kinds) if isinstance(kinds, list) else kinds == "array"
    return is_array and "items" not in schema and "unevaluatedItems" not in schema


def _mcp(definition: ToolDefinition) -> bytes:
    start = _with_schema(definition, b"inputSchema", definition.parameters.text)
    output, hints = definition.output_schema, definition.hints
    title, icons = definition.title, definition.icons
    meta = dict(definition.meta)
    if definition.wire != definition.name:
        meta["toolplug/name"] = definition.name
    if output is None and hints is NO_HINTS and not (title or icons or meta):
        return start
    parts = [start[:-1]]
    parts += [b',"title":', orjson.dumps(title)] if title else []
    parts += [b',"icons":', orjson.dumps(icons)] if icons else []
    if output is not None:
        parts += [b',"outputSchema":', orjson.dumps(_object_schema(output.value)) if wraps(output) else output.text]
    if promises := tool_annotations(hints):
        parts += [b',"annotations":', orjson.dumps(promises)]
    if meta:
        parts += [b',"_meta":', orjson.dumps(meta)]
    return b"".join([*parts, b"}"])


def _anthropic_deferred(definitions: Iterable[ToolDefinition]) -> list[bytes]:
    return [_function(item, b"input_schema")[:-1] + _DEFERRED for item in definitions]


def _responses_deferred(definitions: Iterable[ToolDefinition]) -> list[bytes]:
    """Return a namespace for each prefix, in the order of first tools; the model's names for calls stay the wire names.

    A tool without a prefix, or whose wire name is not `prefix__name`, is a function of its own.
    """
    parts: list[bytes] = []
    spaces: dict[str, list[bytes]] = {}
    for item in definitions:
        prefix, dot, name = item.name.partition(".")
        if not dot or item.wire != f"{prefix}__{name}":
            parts.append(_responses(item)[:-1] + _DEFERRED)
            continue
        # What follows the wire name: in a namespace a function has its name without the prefix.
        own = _function(item)[len(b'{"name":"') + len(item.wire) :]
        function = b'{"type":"function","name":"%b%b,"strict":false%b' % (name.encode(), own[:-1], _DEFERRED)
        spaces.setdefault(prefix, []).append(function)
    for prefix, functions in spaces.items():
        about = orjson.dumps(f"The {len(functions)} tools of {prefix}")
        parts.append(
            b'{"type":"namespace","name":"%b","description":%b,"tools":[%b]}'
            % (prefix.encode(), about, b",".join(functions))
        )
    return parts


_DEFERRED = b',"defer_loading":true}'

WRAPPED = "result"
"""The field for a structured result that is not an object: before 2026-07-28, the protocol has only objects."""


def wraps(output: Schema) -> bool:
    """Return True if structured results of this schema are wrapped in an object, since it is not of one."""
    return output.value.get("type") != "object"


def _object_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of an object with the result, with references to its parts moved along."""
    result = {key: _move(value) for key, value in schema.items() if key != "$defs"}
    whole: dict[str, object] = {"type": "object", "properties": {WRAPPED: result}, "required": [WRAPPED]}
    if "$defs" in schema:
        whole["$defs"] = _move(schema["$defs"])
    return whole


def _move(value: object) -> object:
    if isinstance(value, list):
        return [_move(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    moved = {key: _move(item) for key, item in cast("dict[str, object]", value).items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#") and not reference.startswith("#/$defs/"):
        # The schema is one level further down, but its `$defs` stay at the root.
        moved["$ref"] = f"#/properties/{WRAPPED}{reference[1:]}"
    return moved


def tool_annotations(hints: ToolHints) -> dict[str, bool]:
    """Return the hints as tool annotations of the Model Context Protocol; hints of None are left out."""
    named = {
        "readOnlyHint": hints.read_only,
        "idempotentHint": hints.idempotent,
        "destructiveHint": hints.destructive,
    }
    return {name: value for name, value in named.items() if value is not None}


_DIALECTS: dict[str, Callable[[ToolDefinition], bytes]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": partial(_function, parameters=b"input_schema"),
    "gemini": partial(_function, parameters=b"parametersJsonSchema"),
    "mcp": _mcp,
}


class _NativeSearch(NamedTuple):
    """How an API that searches tools itself is given its search tool, and the deferred tools."""

    search: bytes
    deferred: Callable[[Iterable[ToolDefinition]], list[bytes]]


_NATIVE: dict[str, _NativeSearch] = {
    "responses": _NativeSearch(b'{"type":"tool_search"}', _responses_deferred),
    "anthropic": _NativeSearch(
        b'{"type":"tool_search_tool_bm25_20251119","name":"tool_search_tool_bm25"}', _anthropic_deferred
    ),
}
