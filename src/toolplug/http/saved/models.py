"""What goes over the wire under `/api/toolsets` as pydantic models: camelCase, as CONTRACT.md section 7 has it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from toolplug.http.json_body import CamelAnswer, CamelBody
from toolplug.toolsets.saved.document import DocumentName, NotePart, ToolRefPart
from toolplug.toolsets.saved.notes import MAX_NOTES
from toolplug.toolsets.saved.saved_toolset import MAX_DESCRIPTION, MAX_TOOLS


class BuildBody(CamelBody):
    """A new toolset of tools that the caller has."""

    name: DocumentName
    description: Annotated[str | None, Field(max_length=MAX_DESCRIPTION)] = None
    tools: Annotated[list[ToolRefPart], Field(min_length=1, max_length=MAX_TOOLS)]


class AddNotesBody(CamelBody):
    """Notes for one tool of the toolset."""

    tool_ref: ToolRefPart
    notes: Annotated[list[NotePart], Field(min_length=1, max_length=MAX_NOTES)]
    if_exists: Literal["skip", "replace"] = Field(
        "skip", description="what becomes of a note whose name is there already"
    )


class RemoveNotesBody(CamelBody):
    """The notes of one tool that are to go."""

    tool_ref: ToolRefPart
    names: Annotated[list[str], Field(min_length=1, max_length=MAX_NOTES)]


class ToolRefAnswer(CamelAnswer):
    """A tool by both of its names."""

    namespaced_name: str
    ref_id: str


class ChosenTool(ToolRefAnswer):
    """A tool of a toolset."""

    active: Annotated[bool, Field(description="is it there now")]


class ShownNote(CamelAnswer):
    """One note."""

    name: str
    note: str
    stale: Annotated[bool, Field(description="has the tool changed since it was written")]


class ShownNotes(CamelAnswer):
    """The notes of one tool."""

    tool_ref: ToolRefAnswer
    orphan: Annotated[bool, Field(description="is the tool away")]
    notes: list[ShownNote]


class ToolsetAnswer(CamelAnswer):
    """A saved toolset beside the tools that there are now."""

    name: str
    description: str = ""
    version: int
    tools: list[ChosenTool]
    tool_notes: list[ShownNotes]
    equipped: bool


class ToolsetLineAnswer(CamelAnswer):
    """A saved toolset in a list."""

    name: str
    description: str
    version: int
    tool_count: int
    equipped: bool


class ToolsetList(CamelAnswer):
    """The owner's toolsets, in alphabetical order."""

    toolsets: list[ToolsetLineAnswer]


class Unequipped(CamelAnswer):
    """What was equipped until now."""

    unequipped: str | None


class NotesAnswer(CamelAnswer):
    """What became of the notes, by their names; those that were replaced are among the added."""

    toolset: str
    tool: str
    added_notes: list[str]
    skipped_notes: list[str]
    warnings: list[str]


class NotesGone(CamelAnswer):
    """The notes that are gone."""

    toolset: str
    tool: str
    removed_notes: list[str]
