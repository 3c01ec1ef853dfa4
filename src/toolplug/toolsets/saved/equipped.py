"""What an owner's catalog is while a toolset is equipped."""

from __future__ import annotations

from collections.abc import Callable

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import Note
from toolplug.catalog.plan import Tool
from toolplug.toolsets.saved.saved_toolset import SavedToolset

Stays = Callable[[Tool], bool]
"""Is this tool listed whatever is equipped: without it nobody could choose again."""


def equipped(catalog: Catalog, toolset: SavedToolset, stays: Stays) -> Catalog:
    """The tools of the document that the catalog has, in its order and with its notes; then those that stay.

    It only leaves out: what the owner could not call before is not in it.
    """
    chosen = frozenset(toolset.tools)
    kept = catalog.where(lambda tool: tool.definition.name in chosen or stays(tool))
    notes = {item.tool: [Note(note.name, note.text) for note in item.notes] for item in toolset.notes}
    return kept.annotated(notes).ordered(toolset.tools)


def chosen_only(tool: Tool) -> bool:
    """No tool stays that the document does not name."""
    return False
