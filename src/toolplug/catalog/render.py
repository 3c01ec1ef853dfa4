"""The five dialects in which model APIs read tools. One kept fragment a definition and dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Literal, cast

import orjson

from toolplug.catalog.definition import NO_HINTS, Note, ToolDefinition, ToolHints
from toolplug.catalog.text import NOTES_HEADING, in_one_line

Dialect = Literal["chat", "responses", "anthropic", "gemini", "mcp"]


def listing(definitions: Iterable[ToolDefinition], dialect: Dialect) -> bytes:
    """A JSON array of the tools in one dialect, in this order. Raises `ValueError` for no dialect.

    Each tool is encoded once for the life of its definition.
    """
    encode = _DIALECTS.get(dialect)
    if encode is None:
        near = get_close_matches(dialect, _DIALECTS, 1)
        hint = f" (nearest: {near[0]!r})" if near else ""
        raise ValueError(f"no dialect {dialect!r}; there are {', '.join(map(repr, _DIALECTS))}{hint}")
    parts: list[bytes] = []
    for definition in definitions:
        kept = definition.fragments.get(dialect)
        if kept is None:
            kept = definition.fragments[dialect] = encode(definition)
        parts.append(kept)
    return b"[%b]" % b",".join(parts)


def fragment(definition: ToolDefinition, dialect: Dialect) -> bytes:
    """One tool in one dialect; the same bytes object every time. Raises `ValueError` for no dialect."""
    listing((definition,), dialect)
    return definition.fragments[dialect]


def described(definition: ToolDefinition) -> str:
    """The description as the model reads it: the author's, then the notes, one line each (reference/toolsets.md)."""
    if not definition.notes:
        return definition.description
    section = notes_section(definition.notes)
    return f"{definition.description}\n\n{section}" if definition.description else section


def notes_section(notes: Iterable[Note]) -> str:
    """The notes under their heading."""
    lines = "\n".join(f"• **{note.name}**: {in_one_line(note.text)}" for note in notes)
    return f"{NOTES_HEADING}\n\n{lines}"


def _chat(definition: ToolDefinition) -> bytes:
    return b'{"type":"function","function":' + _function(definition) + b"}"


def _responses(definition: ToolDefinition) -> bytes:
    return b'{"type":"function",' + _function(definition)[1:-1] + b',"strict":false}'


def _function(definition: ToolDefinition) -> bytes:
    return b'%b,"parameters":%b}' % (_head(definition), definition.parameters.text)


def _anthropic(definition: ToolDefinition) -> bytes:
    return b'%b,"input_schema":%b}' % (_head(definition), definition.parameters.text)


def _gemini(definition: ToolDefinition) -> bytes:
    return b'%b,"parametersJsonSchema":%b}' % (_head(definition), definition.parameters.text)


def _mcp(definition: ToolDefinition) -> bytes:
    start = b'%b,"inputSchema":%b}' % (_head(definition), definition.parameters.text)
    output, hints = definition.output_schema, definition.hints
    if output is None and hints is NO_HINTS and definition.wire == definition.name:
        return start
    parts = [start[:-1]]
    if output is not None:
        parts += [b',"outputSchema":', orjson.dumps(_object_schema(output.value)) if wraps(definition) else output.text]
    if promises := promised(hints):
        parts += [b',"annotations":', orjson.dumps(promises)]
    if definition.wire != definition.name:
        parts += [b',"_meta":', orjson.dumps({"toolplug/name": definition.name})]
    return b"".join([*parts, b"}"])


WRAPPED = "result"
"""The field of a structured result that is no object: the protocol has only objects before 2026-07-28."""


def wraps(definition: ToolDefinition) -> bool:
    """Are the structured results of this tool put in an object, as the MCP SDKs do, because they are none."""
    output = definition.output_schema
    return output is not None and output.value.get("type") != "object"


def _object_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """The schema of an object with the result; what the schema's references name moves with them."""
    result = {key: _moved(value) for key, value in schema.items() if key != "$defs"}
    whole: dict[str, object] = {"type": "object", "properties": {WRAPPED: result}, "required": [WRAPPED]}
    if "$defs" in schema:
        whole["$defs"] = _moved(schema["$defs"])
    return whole


def _moved(value: object) -> object:
    if isinstance(value, list):
        return [_moved(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    moved = {key: _moved(item) for key, item in cast("dict[str, object]", value).items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#") and not reference.startswith("#/$defs/"):
        moved["$ref"] = f"#/properties/{WRAPPED}{reference[1:]}"
    return moved


def _head(definition: ToolDefinition) -> bytes:
    """Name and description, without the end; a wire name needs no escapes."""
    text = described(definition) if definition.notes else definition.description
    return b'{"name":"%b","description":%b' % (definition.wire.encode(), orjson.dumps(text))


def promised(hints: ToolHints) -> dict[str, bool]:
    """The hints as Model Context Protocol's tool annotations; empty where nothing is promised."""
    named = {
        "readOnlyHint": hints.read_only,
        "idempotentHint": hints.idempotent,
        "destructiveHint": hints.destructive,
    }
    return {name: value for name, value in named.items() if value is not None}


_DIALECTS: dict[str, Callable[[ToolDefinition], bytes]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "mcp": _mcp,
}
