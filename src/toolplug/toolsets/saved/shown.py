"""A saved toolset beside the tools that there are now: what is away, which notes are stale, which have no tool."""

from __future__ import annotations

from typing import NamedTuple

from toolplug.catalog.catalog import Catalog
from toolplug.toolsets.saved.document import document_fields
from toolplug.toolsets.saved.saved_toolset import SavedToolset, ToolNotes
from toolplug.toolsets.saved.tool_reference import ToolReference


class ShownToolset(NamedTuple):
    """`catalog` is what its owner could call now, without the choice that a toolset makes."""

    toolset: SavedToolset
    equipped: bool
    catalog: Catalog

    def fields(self) -> dict[str, object]:
        """As JSON: the document, whether each tool is active, and of each note whether it is stale.

        Stale is a note whose tool has changed since it was written; an orphan's tool is away.
        """
        fields = document_fields(self.toolset)
        tools = [{**ToolReference.of(tool).fields(), "active": tool in self.catalog} for tool in self.toolset.tools]
        return {**fields, "tools": tools, "toolNotes": [self._notes(item) for item in self.toolset.notes]} | {
            "equipped": self.equipped
        }

    def _notes(self, item: ToolNotes) -> dict[str, object]:
        tool = self.catalog.get(item.tool)
        digest = "" if tool is None else tool.definition.ref.digest
        notes = [
            {"name": note.name, "note": note.text, "stale": bool(digest and note.digest and note.digest != digest)}
            for note in item.notes
        ]
        return {"toolRef": ToolReference.of(item.tool).fields(), "orphan": tool is None, "notes": notes}


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
