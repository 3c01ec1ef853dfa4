"""Sanitising tools of MCP servers: a definition that can be listed, and a report of what was removed."""

from __future__ import annotations

from typing import cast

from toolplug.catalog.definition import (
    MAX_DESCRIPTION_BYTES,
    NO_HINTS,
    ToolDefinition,
    ToolHints,
    check_foreign_tool_name,
)
from toolplug.catalog.sanitise import RemovedParts, sanitise_schema
from toolplug.catalog.schema import Schema
from toolplug.catalog.schema_walk import Path
from toolplug.catalog.text import cleaned, cleaned_description
from toolplug.discovery.record import FoundTool
from toolplug.errors import HiddenCharacter, InvalidDefinition

Node = dict[str, object]

_ANY_OBJECT = Schema({"type": "object"})


def sanitised_parameters(raw: object, cuts: RemovedParts) -> Schema:
    """The schema of a tool's arguments; any object where this one cannot be kept."""
    at = ("inputSchema",)
    if not isinstance(raw, dict):
        cuts.add(at, "is no schema; any object is taken")
        return _ANY_OBJECT
    try:
        return _of_object(cast("Node", raw), at, cuts)
    except HiddenCharacter:
        raise
    except InvalidDefinition as error:
        cuts.add(at, f"{error}; any object is taken")
        return _ANY_OBJECT


def sanitised_output(raw: object, cuts: RemovedParts) -> Schema | None:
    """The schema of a tool's structured results; None where there is none, or it cannot be kept."""
    if raw is None:
        return None
    at = ("outputSchema",)
    if not isinstance(raw, dict):
        cuts.add(at, "is no schema")
        return None
    try:
        return _of_object(cast("Node", raw), at, cuts)
    except HiddenCharacter:
        raise
    except InvalidDefinition as error:
        cuts.add(at, str(error))
        return None


def _of_object(raw: Node, at: Path, cuts: RemovedParts) -> Schema:
    """Raises `InvalidDefinition` for what is past the limits, no JSON Schema, or not of objects."""
    removed = RemovedParts()
    value = sanitise_schema(raw, at, removed)
    stated = value.get("type", "object")
    if stated != "object":
        if not isinstance(stated, list) or "object" not in stated:
            raise InvalidDefinition(f"is of type {stated!r:.40}, not object")
        removed.add((*at, "type"), "other types than object")
    schema = Schema(value | {"type": "object"} if "type" in value else {"type": "object"} | value)
    schema.check()
    cuts.include(removed)
    return schema


KIND = "mcp"

_HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint")
_LOOKED_AT = 8 * MAX_DESCRIPTION_BYTES
"""Characters of a description; what comes after so many cannot be kept, whatever is removed before it."""


def sanitised(raw: object, server: str) -> FoundTool:
    """The tool. Raises `InvalidDefinition` for what has no name that a tool may have."""
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
        description=_description(given.get("description"), cuts) or f"{server} tool: {name}",
        parameters=sanitised_parameters(given.get("inputSchema"), cuts),
        output_schema=sanitised_output(given.get("outputSchema"), cuts),
        hints=_hints(given.get("annotations"), cuts),
    )
    return FoundTool(definition.owned_by(KIND, server), cuts.lines())


def _description(raw: object, cuts: RemovedParts) -> str:
    """Empty where there is none."""
    at = ("description",)
    if raw is None:
        return ""
    if not isinstance(raw, str):
        cuts.add(at, "is no text")
        return ""
    looked_at = raw[:_LOOKED_AT]
    readable = looked_at.encode(errors="ignore").decode()
    seen = cleaned(readable)
    if seen != looked_at:
        cuts.add(at, "invisible characters")
    text = cleaned_description(seen)
    if text != seen:
        cuts.add(at, "a heading of a user's notes")
    kept = text.encode()[:MAX_DESCRIPTION_BYTES].decode(errors="ignore")
    if kept != text or looked_at != raw:
        cuts.add(at, f"what is over {MAX_DESCRIPTION_BYTES} bytes")
    return kept if kept.strip() else ""


def _hints(raw: object, cuts: RemovedParts) -> ToolHints:
    """The hints that mean something here; others are left as they are, unread."""
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
