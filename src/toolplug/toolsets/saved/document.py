"""The document of a saved toolset, exported and imported as JSON or YAML."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, ClassVar, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import Note
from toolplug.catalog.text import clean_text
from toolplug.config.document import parse_document
from toolplug.config.yaml_tree import Value
from toolplug.errors import ApiError
from toolplug.runtime.duplicates import first_repeated
from toolplug.toolsets.saved.saved_toolset import (
    MAX_DESCRIPTION,
    MAX_NOTE,
    MAX_NOTES,
    MAX_TOOLS,
    NOTE_NAME,
    TOOLSET_NAME,
    SavedNote,
    SavedToolset,
    ToolNotes,
    ToolReference,
    check_limits,
    check_saved,
    note_text,
    resolved_or_away,
)

_MAX_TOOL_NAME = 200

DocumentName = Annotated[str, Field(pattern=TOOLSET_NAME, description="2 to 50 of a-z 0-9 -")]


class _ToolsetPart(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, validate_by_name=False, defer_build=True
    )


class ToolRefPart(_ToolsetPart):
    """A tool, by its canonical name, its short id, or both."""

    namespaced_name: Annotated[
        str | None, Field(min_length=1, max_length=_MAX_TOOL_NAME, description="the name that the catalog lists")
    ] = None
    ref_id: Annotated[
        str | None, Field(pattern=r"^[0-9a-f]{16}$", description="the first 16 hex digits of the name's SHA-256")
    ] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.namespaced_name is None and self.ref_id is None:
            raise PydanticCustomError("no_reference", "a tool needs namespacedName or refId")
        return self

    @property
    def reference(self) -> ToolReference:
        return ToolReference(self.namespaced_name, self.ref_id)


class NotePart(_ToolsetPart):
    """One note."""

    name: Annotated[str, Field(pattern=NOTE_NAME, description="2 to 50 of a-z 0-9 -")]
    note: Annotated[str, Field(min_length=1, max_length=MAX_NOTE, description="the advice, shown in one line")]

    @field_validator("note")
    @classmethod
    def _says_something(cls, text: str) -> str:
        if not note_text(text):
            raise PydanticCustomError("empty_note", "a note says something")
        return text

    @property
    def value(self) -> Note:
        return Note(self.name, self.note)


class ToolNotesPart(_ToolsetPart):
    """The notes of one tool."""

    tool_ref: ToolRefPart
    notes: Annotated[list[NotePart], Field(min_length=1, max_length=MAX_NOTES)]


class Document(_ToolsetPart):
    """A saved toolset."""

    name: DocumentName
    description: Annotated[str | None, Field(max_length=MAX_DESCRIPTION)] = None
    version: Annotated[int, Field(ge=1, description="rises by one with each change")] = 1
    tools: Annotated[list[ToolRefPart], Field(min_length=1, max_length=MAX_TOOLS)]
    tool_notes: Annotated[list[ToolNotesPart], Field(max_length=MAX_TOOLS)] = []


def document_fields(toolset: SavedToolset) -> dict[str, object]:
    """Return the document of a toolset as plain values, in reading order."""
    notes = [
        {
            "toolRef": ToolReference.of(item.tool).fields(),
            "notes": [{"name": note.name, "note": note.text} for note in item.notes],
        }
        for item in toolset.notes
    ]
    return {
        "name": toolset.name,
        **({"description": toolset.description} if toolset.description else {}),
        "version": toolset.version,
        "tools": [ToolReference.of(tool).fields() for tool in toolset.tools],
        **({"toolNotes": notes} if notes else {}),
    }


def import_toolset(document: Document, catalog: Catalog) -> SavedToolset:
    """Return the toolset that a document describes; tools that are not listed count as unavailable.

    Its notes count as written about the current tools. Raises `ApiError`.
    """
    tools = tuple(resolved_or_away(item.reference, catalog) for item in document.tools)
    check_saved(document.name, tools)
    notes = tuple(_notes(item, tools, catalog) for item in document.tool_notes)
    twice = first_repeated(item.tool for item in notes)
    if twice is not None:
        message = f"the notes of {twice!r} appear twice; merge them"
        raise ApiError("duplicate_tool", message, "toolNotes")
    return SavedToolset(
        name=document.name,
        description=clean_text(document.description or "").strip(),
        version=document.version,
        tools=tools,
        notes=notes,
    )


def _notes(item: ToolNotesPart, tools: tuple[str, ...], catalog: Catalog) -> ToolNotes:
    tool = resolved_or_away(item.tool_ref.reference, catalog)
    if tool not in tools:
        raise ApiError("tool_not_in_toolset", f"the notes are of {tool!r}, which is not in it", "toolNotes")
    definition = None if tool not in catalog else catalog[tool].definition
    digest, length = ("", 0) if definition is None else (definition.ref.digest, len(definition.description))
    notes = {note.name: SavedNote(note.name, note_text(note.note), digest) for note in item.notes}
    if len(notes) < len(item.notes):
        raise ApiError("duplicate_note", f"two notes of {tool!r} have one name", "toolNotes")
    made = ToolNotes(tool=tool, notes=tuple(notes.values()), description_length=length)
    check_limits(made)
    return made


Form = Literal["json", "yaml"]

_WIDTH = 100


def document_text(fields: Mapping[str, object], form: Form) -> bytes:
    """Return the document as JSON, one key a line, in the order of its fields."""
    if form == "json":
        return orjson.dumps(fields, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    yaml = import_module("yaml")  # most hosts never write one
    return yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=_WIDTH, encoding="utf-8")


def yaml_fields(text: bytes, *, file: str) -> dict[str, Value]:
    """Return the values of a YAML document, read within the limits of configuration files. Raises `ConfigError`."""
    return parse_document(text, file=file).value
