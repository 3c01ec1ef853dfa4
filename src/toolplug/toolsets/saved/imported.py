"""From the document of a toolset to the toolset, among the tools that there are now."""

from __future__ import annotations

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.cleaning import cleaned
from toolplug.errors import SavedToolsetRefused
from toolplug.toolsets.saved.document import Document, ToolNotesPart
from toolplug.toolsets.saved.notes import check_limits, note_text
from toolplug.toolsets.saved.saved_toolset import SavedNote, SavedToolset, ToolNotes, check_saved
from toolplug.toolsets.saved.tool_reference import resolved_or_away


def imported(document: Document, catalog: Catalog) -> SavedToolset:
    """The toolset that a document describes; a tool that is named and not listed is away.

    Its notes count as written about the tools as they are now. Raises `SavedToolsetRefused`.
    """
    tools = tuple(resolved_or_away(item.reference, catalog) for item in document.tools)
    check_saved(document.name, tools)
    notes = tuple(_notes(item, tools, catalog) for item in document.tool_notes)
    twice = [item.tool for item in notes if [other.tool for other in notes].count(item.tool) > 1]
    if twice:
        message = f"the notes of {twice[0]!r} stand in two places; put them together"
        raise SavedToolsetRefused("duplicate_tool", message, "toolNotes")
    return SavedToolset(
        name=document.name,
        description=cleaned(document.description or "").strip(),
        version=document.version,
        tools=tools,
        notes=notes,
    )


def _notes(item: ToolNotesPart, tools: tuple[str, ...], catalog: Catalog) -> ToolNotes:
    tool = resolved_or_away(item.tool_ref.reference, catalog)
    if tool not in tools:
        raise SavedToolsetRefused("tool_not_in_toolset", f"the notes are of {tool!r}, which is not in it", "toolNotes")
    definition = None if tool not in catalog else catalog[tool].definition
    digest, length = ("", 0) if definition is None else (definition.ref.digest, len(definition.description))
    notes = {note.name: SavedNote(note.name, note_text(note.note), digest) for note in item.notes}
    if len(notes) < len(item.notes):
        raise SavedToolsetRefused("duplicate_note", f"two notes of {tool!r} have one name", "toolNotes")
    made = ToolNotes(tool=tool, notes=tuple(notes.values()), description_length=length)
    check_limits(made)
    return made
