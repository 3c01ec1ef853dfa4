"""Adding notes to a tool of a saved toolset, and removing them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from toolplug.catalog.definition import Note, ToolDefinition
from toolplug.catalog.exact_json import Answer
from toolplug.catalog.text import clean_text, in_one_line
from toolplug.errors import ApiError
from toolplug.toolsets.saved.saved_toolset import SavedNote, SavedToolset, ToolNotes

NOTE_NAME = r"^[a-z0-9-]{2,50}$"
MAX_NOTE = 2000
MAX_NOTES = 20
MAX_NOTES_BYTES = 8 * 1024

_NAME = re.compile(NOTE_NAME)


class NotesAnswer(Answer):
    """The outcome for each note, by name; replaced notes are among the added."""

    toolset: str
    tool: str
    addedNotes: list[str]
    skippedNotes: list[str]
    warnings: list[str]


class NotesGone(Answer):
    """The names of removed notes."""

    toolset: str
    tool: str
    removedNotes: list[str]


class NotesAdded(NamedTuple):
    """The outcome of adding notes; `skipped` are existing names, whose notes are unchanged."""

    toolset: SavedToolset
    tool: str
    added: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def fields(self) -> NotesAnswer:
        return {
            "toolset": self.toolset.name,
            "tool": self.tool,
            "addedNotes": list(self.added),
            "skippedNotes": list(self.skipped),
            "warnings": list(self.warnings),
        }


class NotesRemoved(NamedTuple):
    """The toolset after the removal, the tool, and the names of the removed notes."""

    toolset: SavedToolset
    tool: str
    removed: tuple[str, ...]

    def fields(self) -> NotesGone:
        return {"toolset": self.toolset.name, "tool": self.tool, "removedNotes": list(self.removed)}


def note_text(text: str) -> str:
    """Return the text as it is stored: in one line, without invisible characters."""
    return clean_text(in_one_line(text)).strip()


def with_notes(
    toolset: SavedToolset, definition: ToolDefinition, notes: Sequence[Note], *, replace: bool
) -> NotesAdded:
    """Return the toolset with these notes on one of its tools; an existing name is skipped or replaced.

    `definition` is the tool's current definition under its canonical name. Raises `ApiError` for a tool that is not in
    the toolset, an invalid note, and an exceeded limit.
    """
    tool = definition.name
    if tool not in toolset.tools:
        raise ApiError("tool_not_in_toolset", f"the tool {tool!r} is not in the toolset {toolset.name!r}", "toolRef")
    kept = {note.name: note for note in toolset.notes_of(tool).notes}
    added: list[str] = []
    skipped: list[str] = []
    warnings: list[str] = []
    for name, text in notes:
        _check_note(name, text)
        there = name in kept
        # The second note of a name in one request is skipped, also with `replace`.
        if there and (not replace or name in added):
            skipped.append(name)
            warnings.append(f"the note {name!r} exists already and is unchanged")
            continue
        if there:
            warnings.append(f"the note {name!r} was replaced")
        kept[name] = SavedNote(name, note_text(text), definition.ref.digest)
        added.append(name)
    if not added:
        return NotesAdded(toolset, tool, (), tuple(skipped), tuple(warnings))
    changed = ToolNotes(tool=tool, notes=tuple(kept.values()), description_length=len(definition.description))
    check_limits(changed)
    return NotesAdded(toolset.with_notes(changed), tool, tuple(added), tuple(skipped), tuple(warnings))


def without_notes(toolset: SavedToolset, tool: str, names: Collection[str]) -> SavedToolset:
    """Return the toolset without these notes of a tool. Raises `ApiError` for an unknown name."""
    before = toolset.notes_of(tool)
    missing = [name for name in names if all(note.name != name for note in before.notes)]
    if missing:
        raise ApiError("note_not_found", f"the tool {tool!r} has no note {missing[0]!r} here", "names")
    left = tuple(note for note in before.notes if note.name not in names)
    return toolset.with_notes(ToolNotes(tool=tool, notes=left, description_length=before.description_length))


def _check_note(name: str, text: str) -> None:
    if not _NAME.fullmatch(name):
        message = f"{name[:60]!r} is not a valid name of a note; 2 to 50 of the characters a-z 0-9 - are allowed"
        raise ApiError("invalid_note", message, "notes")
    if not note_text(text) or len(text) > MAX_NOTE:
        message = f"the note {name!r} has {len(text)} characters; it says something, in 1 to {MAX_NOTE} of them"
        raise ApiError("invalid_note", message, "notes")


def check_limits(notes: ToolNotes) -> None:
    """Raise `ApiError` if a tool would have too many notes, or too long ones."""
    size = sum(len(note.name.encode()) + len(note.text.encode()) for note in notes.notes)
    if len(notes.notes) > MAX_NOTES or size > MAX_NOTES_BYTES:
        message = (
            f"the tool {notes.tool!r} would have {len(notes.notes)} notes of {size} bytes;"
            f" {MAX_NOTES} notes and {MAX_NOTES_BYTES} bytes are allowed"
        )
        raise ApiError("too_many_notes", message, "notes")
