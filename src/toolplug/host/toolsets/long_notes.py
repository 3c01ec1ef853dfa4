"""Notes that make a tool's description longer than some model APIs take."""

from __future__ import annotations

from toolplug.catalog.definition import Note
from toolplug.catalog.render import notes_section
from toolplug.errors import Problem
from toolplug.stores.store import Store
from toolplug.toolsets.saved.saved_records import SavedRecords

MAX_DESCRIPTION = 1024
"""Some model APIs refuse a longer description of a tool."""

_JOINT = 2


async def long_notes(store: Store) -> list[Problem]:
    """One for each tool of each saved toolset whose description and notes together are too long.

    The description counts as long as it was when a note was last added. Raises `StoreError`.
    """
    found: list[Problem] = []
    async for toolset in SavedRecords(store).every():
        for item in toolset.notes:
            section = notes_section([Note(note.name, note.text) for note in item.notes])
            length = len(section) + (item.description_length + _JOINT if item.description_length else 0)
            if length > MAX_DESCRIPTION:
                message = f"with its notes the description of {item.tool!r} has {length} characters"
                hint = f"some model APIs refuse more than {MAX_DESCRIPTION}; shorten the notes, or remove some"
                found.append(
                    Problem(code="long_notes", message=message, path=f"saved toolset {toolset.name}", hint=hint)
                )
    return found
