"""The four dialects in which model APIs read tools. One kept fragment a definition and dialect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

import orjson

from toolplug.catalog.definition import NO_HINTS, ToolDefinition, ToolHints

Dialect = Literal["chat", "responses", "anthropic", "mcp"]

NOTES_HEADING = "### Additional Tool Notes"

_LINE_BREAKS = re.compile("[\r\n\v\f\u0085\u2028\u2029]+")


def listing(fragments: Iterable[bytes]) -> bytes:
    """A JSON array of the fragments."""
    return b"[" + b",".join(fragments) + b"]"


def fragment(definition: ToolDefinition, dialect: Dialect) -> bytes:
    """One tool in one dialect, encoded once for the life of the definition. Raises `KeyError` for no dialect."""
    kept = definition.fragments.get(dialect)
    if kept is None:
        kept = definition.fragments[dialect] = _DIALECTS[dialect](definition)
    return kept


def described(definition: ToolDefinition) -> str:
    """The description as the model reads it: the author's, then the notes, one line each (CONTRACT.md section 7)."""
    if not definition.notes:
        return definition.description
    lines = "\n".join(f"• **{note.name}**: {_LINE_BREAKS.sub(' ', note.text).strip()}" for note in definition.notes)
    section = f"{NOTES_HEADING}\n\n{lines}"
    return f"{definition.description}\n\n{section}" if definition.description else section


def _chat(definition: ToolDefinition) -> bytes:
    return b'{"type":"function","function":' + _function(definition) + b"}"


def _responses(definition: ToolDefinition) -> bytes:
    return b'{"type":"function",' + _function(definition)[1:-1] + b',"strict":false}'


def _function(definition: ToolDefinition) -> bytes:
    head = orjson.dumps({"name": definition.wire, "description": described(definition)})
    return head[:-1] + b',"parameters":' + definition.parameters.text + b"}"


def _anthropic(definition: ToolDefinition) -> bytes:
    head = orjson.dumps({"name": definition.wire, "description": described(definition)})
    return head[:-1] + b',"input_schema":' + definition.parameters.text + b"}"


def _mcp(definition: ToolDefinition) -> bytes:
    head = orjson.dumps({"name": definition.wire, "description": described(definition)})
    parts = [head[:-1], b',"inputSchema":', definition.parameters.text]
    if definition.output_schema is not None:
        parts += [b',"outputSchema":', definition.output_schema.text]
    if definition.hints != NO_HINTS and (annotations := _annotations(definition.hints)):
        parts += [b',"annotations":', orjson.dumps(annotations)]
    if definition.wire != definition.name:
        parts += [b',"_meta":', orjson.dumps({"toolplug/name": definition.name})]
    return b"".join([*parts, b"}"])


def _annotations(hints: ToolHints) -> dict[str, bool]:
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
    "mcp": _mcp,
}
