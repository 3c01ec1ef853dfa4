"""One saved toolset: an ordered choice of tools by canonical name, with notes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from toolplug.errors import SavedToolsetRefused

TOOLSET_NAME = r"^[a-z0-9-]{2,50}$"
MAX_TOOLS = 100
MAX_DESCRIPTION = 1000

RESERVED = frozenset({"active", "import", "unequip"})
"""Names that are routes under `/api/toolsets`."""

_NAME = re.compile(TOOLSET_NAME)
_REF_ID_DIGITS = 16


class SavedNote(NamedTuple):
    """A note and the digest of the definition that it was written about; empty where the tool was away then."""

    name: str
    text: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNotes:
    """The notes of one tool, in the order in which they came.

    `description_length`: the characters of the tool's own description when a note was last added, 0 while it is not
    known.
    """

    tool: str
    notes: tuple[SavedNote, ...]
    description_length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedToolset:
    """`tools` are canonical names in the order in which a model sees them; `version` rises by one with each change."""

    name: str
    tools: tuple[str, ...]
    description: str = ""
    version: int = 1
    notes: tuple[ToolNotes, ...] = ()

    def notes_of(self, tool: str) -> ToolNotes:
        """The notes of a tool, which may be none."""
        return next((item for item in self.notes if item.tool == tool), ToolNotes(tool=tool, notes=()))

    def with_notes(self, changed: ToolNotes) -> SavedToolset:
        """The next version, with these as the notes of their tool."""
        kept = [changed if item.tool == changed.tool else item for item in self.notes]
        if all(item.tool != changed.tool for item in self.notes):
            kept.append(changed)
        return replace(self, version=self.version + 1, notes=tuple(item for item in kept if item.notes))


def is_toolset_name(name: str) -> bool:
    """Could a toolset be called so."""
    return bool(_NAME.fullmatch(name))


def ref_id(name: str) -> str:
    """The short id of a tool: a function of its canonical name alone."""
    return hashlib.sha256(name.encode()).hexdigest()[:_REF_ID_DIGITS]


def check_saved(name: str, tools: Sequence[str]) -> None:
    """Raise `SavedToolsetRefused` where a toolset cannot be called so, or have just these tools."""
    if not is_toolset_name(name):
        message = f"{name[:60]!r} is no name of a toolset; 2 to 50 of the characters a-z 0-9 - are allowed"
        raise SavedToolsetRefused("invalid_name", message, "name")
    if name in RESERVED:
        raise SavedToolsetRefused("invalid_name", f"the name {name!r} is taken by the routes; give another", "name")
    if not 1 <= len(tools) <= MAX_TOOLS:
        message = f"a toolset has 1 to {MAX_TOOLS} tools, not {len(tools)}"
        raise SavedToolsetRefused("too_many_tools", message, "tools")
    if len(set(tools)) < len(tools):
        twice = next(tool for tool in tools if tools.count(tool) > 1)
        raise SavedToolsetRefused("duplicate_tool", f"the tool {twice!r} stands twice in the toolset", "tools")
