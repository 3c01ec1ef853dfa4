"""A saved toolset compared with the current tools: which are unavailable, which notes are stale or have no tool."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, NotRequired, TypedDict

from pydantic import Field

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.exact_json import Answer
from toolplug.toolsets.saved.saved_toolset import SavedNote, SavedToolset, ToolNotes, ToolRefAnswer, ToolReference


class ChosenTool(ToolRefAnswer):
    """A tool of a toolset."""

    active: Annotated[bool, Field(description="is it there now")]


class ShownNote(Answer):
    """One note."""

    name: str
    note: str
    stale: Annotated[bool, Field(description="has the tool changed since it was written, or is it away")]


class ShownNotes(Answer):
    """The notes of one tool."""

    toolRef: ToolRefAnswer
    orphan: Annotated[bool, Field(description="is the tool away")]
    notes: list[ShownNote]


class ToolsetAnswer(Answer):
    """A saved toolset compared with the current tools."""

    name: str
    description: NotRequired[Annotated[str, Field(json_schema_extra={"default": ""})]]
    version: int
    tools: list[ChosenTool]
    toolNotes: list[ShownNotes]
    equipped: bool


class ToolsetLineAnswer(Answer):
    """A saved toolset in a list."""

    name: str
    description: str
    version: int
    toolCount: int
    equipped: bool


NoteState = Literal["good", "stale", "orphan"]


class _Described(TypedDict, total=False):
    description: str


class ShownToolset(NamedTuple):
    """A saved toolset and the `catalog` that its owner could call without it."""

    toolset: SavedToolset
    equipped: bool
    catalog: Catalog

    def fields(self) -> ToolsetAnswer:
        """Return the JSON: the document, whether each tool is active, and whether each note is stale.

        A note is stale if its tool is not the one that it was written about: changed, or, for an orphan, unavailable.
        """
        toolset = self.toolset
        tools: list[ChosenTool] = [
            {**ToolReference.of(tool).fields(), "active": tool in self.catalog} for tool in toolset.tools
        ]
        described: _Described = {"description": toolset.description} if toolset.description else {}
        return {
            "name": toolset.name,
            **described,
            "version": toolset.version,
            "tools": tools,
            "toolNotes": [self._notes(item) for item in toolset.notes],
            "equipped": self.equipped,
        }

    def state_of(self, item: ToolNotes, note: SavedNote) -> NoteState:
        """Return `orphan` if the note's tool is unavailable, `stale` if it has changed since the note, else `good`."""
        tool = self.catalog.get(item.tool)
        if tool is None:
            return "orphan"
        return "stale" if note.digest and note.digest != tool.definition.ref.digest else "good"

    def _notes(self, item: ToolNotes) -> ShownNotes:
        notes: list[ShownNote] = [
            {"name": note.name, "note": note.text, "stale": self.state_of(item, note) != "good"} for note in item.notes
        ]
        orphan = item.tool not in self.catalog
        return {"toolRef": ToolReference.of(item.tool).fields(), "orphan": orphan, "notes": notes}


class ToolsetLine(NamedTuple):
    """A saved toolset in a list."""

    toolset: SavedToolset
    equipped: bool

    def fields(self) -> ToolsetLineAnswer:
        """Return the JSON of a line."""
        toolset = self.toolset
        return {
            "name": toolset.name,
            "description": toolset.description,
            "version": toolset.version,
            "toolCount": len(toolset.tools),
            "equipped": self.equipped,
        }
