"""A saved toolset beside the tools that there are now: what is away, which notes are stale, which have no tool."""

from __future__ import annotations

from typing import Literal, NamedTuple

from toolplug.catalog.catalog import Catalog
from toolplug.toolsets.saved.document import document_fields
from toolplug.toolsets.saved.saved_toolset import SavedNote, SavedToolset, ToolNotes, ToolReference

NoteState = Literal["good", "stale", "orphan"]


class ShownToolset(NamedTuple):
    """`catalog` is what its owner could call now, without the choice that a toolset makes."""

    toolset: SavedToolset
    equipped: bool
    catalog: Catalog

    def fields(self) -> dict[str, object]:
        """As JSON: the document, whether each tool is active, and of each note whether it is stale.

        Stale is a note whose tool is not the one for which it was written: it has changed, or, for an orphan, is away.
        """
        fields = document_fields(self.toolset)
        tools = [{**ToolReference.of(tool).fields(), "active": tool in self.catalog} for tool in self.toolset.tools]
        return {**fields, "tools": tools, "toolNotes": [self._notes(item) for item in self.toolset.notes]} | {
            "equipped": self.equipped
        }

    def state_of(self, item: ToolNotes, note: SavedNote) -> NoteState:
        """Is the note's tool there, and what it was when the note was written."""
        tool = self.catalog.get(item.tool)
        if tool is None:
            return "orphan"
        return "stale" if note.digest and note.digest != tool.definition.ref.digest else "good"

    def _notes(self, item: ToolNotes) -> dict[str, object]:
        notes = [
            {"name": note.name, "note": note.text, "stale": self.state_of(item, note) != "good"} for note in item.notes
        ]
        orphan = item.tool not in self.catalog
        return {"toolRef": ToolReference.of(item.tool).fields(), "orphan": orphan, "notes": notes}


class ToolsetLine(NamedTuple):
    """A saved toolset in a list."""

    toolset: SavedToolset
    equipped: bool

    def fields(self) -> dict[str, object]:
        """As JSON."""
        toolset = self.toolset
        return {
            "name": toolset.name,
            "description": toolset.description,
            "version": toolset.version,
            "toolCount": len(toolset.tools),
            "equipped": self.equipped,
        }
