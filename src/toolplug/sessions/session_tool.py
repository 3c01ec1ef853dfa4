"""One tool of a session: checked, cleaned, and kept once however many sessions have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from weakref import WeakValueDictionary

import orjson

from toolplug.catalog.definition import NO_HINTS, ToolDefinition, ToolHints, ToolRef, check_foreign_tool_name
from toolplug.catalog.schema import MAX_SCHEMA_BYTES, Schema
from toolplug.errors import InvalidDefinition
from toolplug.sessions.capability import Requirement, read_requirements

KIND = "session"
SOURCE = "_session"
"""Every session's label in metrics, and the source of its tools: codes stand nowhere but in addresses."""

MAX_DEFINITION_BYTES = MAX_SCHEMA_BYTES
_KEYS = ("name", "description", "inputSchema", "outputSchema", "annotations", "requires")
_HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class SessionTool:
    """`wire` is its JSON as metadata and events show it."""

    definition: ToolDefinition
    wire: bytes
    requires: tuple[Requirement, ...]

    @property
    def name(self) -> str:
        """The session's own name for it."""
        return self.definition.name


class ToolPool:
    """Session tools by their JSON: equal definitions are one object while any session has it."""

    def __init__(self) -> None:
        self._tools: WeakValueDictionary[bytes, SessionTool] = WeakValueDictionary()

    def tool(self, raw: object) -> SessionTool:
        """The tool that this JSON object defines. Raises `InvalidDefinition`, with the key to blame."""
        given = _object(raw)
        try:
            text = orjson.dumps(given)
        except (TypeError, orjson.JSONEncodeError) as error:
            raise InvalidDefinition(f"the definition is not JSON: {error}") from None
        known = self._tools.get(text)
        if known is not None:
            return known
        if len(text) > MAX_DEFINITION_BYTES:
            raise InvalidDefinition(f"the definition has {len(text)} bytes, {MAX_DEFINITION_BYTES} are allowed")
        tool = _read(given)
        return self._tools.setdefault(tool.wire, tool)


def _object(raw: object) -> dict[str, object]:
    if not isinstance(raw, dict):
        raise InvalidDefinition("a tool must be an object with name, description and inputSchema")
    given = cast("dict[str, object]", raw)
    for key in map(str, given):
        if key not in _KEYS:
            raise InvalidDefinition(f"unknown key {key[:80]!r}; known: {', '.join(_KEYS)}", at=key[:80])
    return given


def _read(given: Mapping[str, object]) -> SessionTool:
    name = given.get("name")
    if not isinstance(name, str):
        raise InvalidDefinition("name must be text", at="name")
    check_foreign_tool_name(name)
    description = given.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidDefinition("description must be text", at="description")
    parameters = _schema(given.get("inputSchema"), "inputSchema")
    output = None if given.get("outputSchema") is None else _schema(given["outputSchema"], "outputSchema")
    requires = read_requirements(given["requires"]) if given.get("requires") is not None else ()
    hints = _hints(given.get("annotations"))
    try:
        definition = ToolDefinition(
            name=name,
            description=description or "",
            parameters=parameters,
            output_schema=output,
            hints=hints,
        )
    except InvalidDefinition as error:
        raise InvalidDefinition(str(error), at="description") from None
    ref = ToolRef(KIND, SOURCE, name, definition.ref.digest)
    return SessionTool(definition=definition.owned_by(*ref[:2]), wire=_wire(given, definition), requires=requires)


def _schema(raw: object, at: str) -> Schema:
    if not isinstance(raw, dict):
        raise InvalidDefinition(f"{at} must be a JSON Schema, an object", at=at)
    given = cast("dict[str, object]", raw)
    if given.get("type", "object") != "object":
        raise InvalidDefinition(f"{at} must be of type object", at=f"{at}.type")
    try:
        schema = Schema(given)
        schema.check()
    except InvalidDefinition as error:
        raise InvalidDefinition(f"{at}: {error}", at=at) from None
    return schema


def _hints(raw: object) -> ToolHints:
    """The hints of MCP's tool annotations; others are kept and mean nothing here."""
    if raw is None:
        return NO_HINTS
    if not isinstance(raw, dict) or any(
        isinstance(value, dict | list) for value in cast("dict[str, object]", raw).values()
    ):
        raise InvalidDefinition("annotations must be an object of texts, numbers and booleans", at="annotations")
    given = cast("dict[str, object]", raw)
    for key in _HINTS:
        if not isinstance(given.get(key), bool | None):
            raise InvalidDefinition(f"annotations.{key} must be true or false", at=f"annotations.{key}")
    read_only, idempotent, destructive = (cast("bool | None", given.get(key)) for key in _HINTS)
    return ToolHints(read_only, idempotent, destructive)


def _wire(given: Mapping[str, object], definition: ToolDefinition) -> bytes:
    kept = {key: given[key] for key in _KEYS if given.get(key) is not None}
    if "description" in kept:
        kept["description"] = definition.description
    # A copy: the encoder's own bytes keep the room that they were written in, some kilobytes each.
    return bytes(memoryview(orjson.dumps(kept)))
