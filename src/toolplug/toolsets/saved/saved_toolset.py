"""A saved toolset: its owner, and its tools in order by canonical name or short id, with notes, which come and go.

Compared with the current tools: which are unavailable, which notes are stale or have no tool.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple, NotRequired, TypedDict, cast

from pydantic import Field

from toolplug.catalog.call import CallContext, Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import Note, ToolDefinition
from toolplug.catalog.exact_json import Answer
from toolplug.catalog.text import clean_text, in_one_line
from toolplug.config.nearest import name_hint
from toolplug.errors import ApiError
from toolplug.runtime.duplicates import first_repeated
from toolplug.stores.store import name_digest

TOOLSET_NAME = r"^[a-z0-9-]{2,50}$"
MAX_TOOLS = 100
MAX_DESCRIPTION = 1000

RESERVED = frozenset({"active", "import", "unequip"})
"""Names that are routes under `/api/toolsets`."""

_NAME = re.compile(TOOLSET_NAME)
_REF_ID_DIGITS = 16


class SavedNote(NamedTuple):
    """A note, with the digest of the definition that it was written about; empty if the tool was unavailable then."""

    name: str
    text: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNotes:
    """The notes of one tool, the oldest first.

    `description_length`: the characters of the tool's own description when a note was last added, 0 if unknown.
    """

    tool: str
    notes: tuple[SavedNote, ...]
    description_length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedToolset:
    """A saved toolset. `tools` are canonical names in the model's order; `version` rises by one with each change."""

    name: str
    tools: tuple[str, ...]
    description: str = ""
    version: int = 1
    notes: tuple[ToolNotes, ...] = ()

    def notes_of(self, tool: str) -> ToolNotes:
        """Return the notes of a tool, empty without any."""
        return next((item for item in self.notes if item.tool == tool), ToolNotes(tool=tool, notes=()))

    def with_notes(self, changed: ToolNotes) -> SavedToolset:
        """Return the next version, with these as the notes of their tool."""
        kept = [changed if item.tool == changed.tool else item for item in self.notes]
        if all(item.tool != changed.tool for item in self.notes):
            kept.append(changed)
        return replace(self, version=self.version + 1, notes=tuple(item for item in kept if item.notes))


def is_toolset_name(name: str) -> bool:
    """Return whether the text is valid as the name of a toolset."""
    return bool(_NAME.fullmatch(name))


def ref_id(name: str) -> str:
    """Return the short id of a tool, a function of its canonical name."""
    return hashlib.sha256(name.encode()).hexdigest()[:_REF_ID_DIGITS]


def check_saved(name: str, tools: Sequence[str]) -> None:
    """Raise `ApiError` if the name or the list of tools is invalid."""
    if not is_toolset_name(name):
        message = f"{name[:60]!r} is not a valid name of a toolset; 2 to 50 of the characters a-z 0-9 - are allowed"
        raise ApiError("invalid_name", message, "name")
    if name in RESERVED:
        raise ApiError("invalid_name", f"the name {name!r} is taken by the routes; give another", "name")
    if not 1 <= len(tools) <= MAX_TOOLS:
        message = f"a toolset has 1 to {MAX_TOOLS} tools, not {len(tools)}"
        raise ApiError("too_many_tools", message, "tools")
    twice = first_repeated(tools)
    if twice is not None:
        raise ApiError("duplicate_tool", f"duplicate tool {twice!r} in the toolset", "tools")


class ToolRefAnswer(Answer):
    """A tool, by its canonical name and its short id."""

    namespacedName: str
    refId: str


class ToolReference(NamedTuple):
    """Names one tool by its canonical name, its short id, or both, which must then agree.

    ```python
    from toolplug import ToolReference

    by_name = ToolReference("notes.add")
    both = ToolReference.of("notes.add")  # its canonical name and its short id
    assert both.name == "notes.add" and len(both.ref_id) == 16
    ```
    """

    name: str | None = None
    ref_id: str | None = None

    @classmethod
    def of(cls, name: str) -> ToolReference:
        """Return a reference with both names of the tool of this canonical name."""
        return cls(name, ref_id(name))

    def fields(self) -> ToolRefAnswer:
        """Return the JSON, if both names are known."""
        return cast("ToolRefAnswer", {"namespacedName": self.name, "refId": self.ref_id})

    def __str__(self) -> str:
        return repr(self.ref_id if self.name is None else self.name)


def resolve_reference(reference: ToolReference, catalog: Catalog, away: Collection[str] = ()) -> str:
    """Return the canonical name of a listed tool. Raises `ApiError`.

    `away`: known names that may be unlisted; the error says so for them.
    """
    found = _found(reference, catalog)
    if found is None:
        if any(reference.name == name or reference.ref_id == ref_id(name) for name in away):
            fix = "act as the agent that does, or wait until it is back"
            message = f"the tool {reference} is in the toolset, but this caller does not see it now; {fix}"
            raise ApiError("tool_not_found", message, "toolRef")
        hint = name_hint(reference.name, catalog) if reference.name is not None else ""
        raise ApiError("tool_not_found", f"there is no tool {reference}" + (f" ({hint})" if hint else ""), "toolRef")
    return found


def resolved_or_away(reference: ToolReference, catalog: Catalog) -> str:
    """Return the canonical name of a tool; an unlisted canonical name is accepted, as its tool may be unavailable."""
    found = _found(reference, catalog)
    return (
        resolve_reference(reference, catalog)
        if found is None and reference.name is None
        else found or str(reference.name)
    )


def noted_tool(reference: ToolReference, toolset: SavedToolset, catalog: Catalog) -> str:
    """Return the canonical name of a tool of the toolset, listed or not. Raises `ApiError`."""
    # The tool may be away, so that the catalog does not have its short id.
    by_id = {ref_id(tool): tool for tool in toolset.tools}
    if reference.name is None and reference.ref_id in by_id:
        return by_id[reference.ref_id]
    return resolved_or_away(reference, catalog)


def _found(reference: ToolReference, catalog: Catalog) -> str | None:
    name, given = reference
    if name is None:
        return next((listed for listed in catalog if ref_id(listed) == given), None)
    tool = catalog.find(name)
    canonical = name if tool is None else tool.definition.name
    if given is not None and given != ref_id(canonical):
        message = f"{canonical!r} has the reference id {ref_id(canonical)!r}, not {given!r}; give one of the two"
        raise ApiError("tool_reference_mismatch", message, "toolRef")
    return None if tool is None else canonical


class ToolsetOwner(NamedTuple):
    """The owner of saved toolsets, who may equip one. Inside a session a subject is another owner than outside."""

    tenant: str
    subject: str
    session: str | None = None

    @property
    def key(self) -> str:
        """The owner's part of store keys: a hash, as names may be any text; in a session, after the session's code."""
        who = name_digest(self.tenant, self.subject)[:32]
        return f"own/{who}" if self.session is None else f"session/{self.session}/{who}"


class Caller(NamedTuple):
    """The principal of a request, with its agent and session. `request_id` is for the audit log.

    ```python
    from toolplug import Caller, CallContext, Principal

    caller = Caller.of(CallContext(Principal("ada", "acme"), agent="clerk"))
    assert caller == Caller(Principal("ada", "acme"), agent="clerk")
    ```
    """

    principal: Principal
    agent: str | None = None
    session: str | None = None
    request_id: str = ""

    @classmethod
    def of(cls, context: CallContext) -> Caller:
        """Return the caller of a tool call."""
        return cls(context.principal, context.agent, context.session, context.request_id)

    @property
    def owner(self) -> ToolsetOwner:
        """The owner of the caller's toolsets."""
        return ToolsetOwner(self.principal.tenant, self.principal.subject, self.session)


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
        toolset = self.toolset
        return {
            "name": toolset.name,
            "description": toolset.description,
            "version": toolset.version,
            "toolCount": len(toolset.tools),
            "equipped": self.equipped,
        }


NOTE_NAME = r"^[a-z0-9-]{2,50}$"
MAX_NOTE = 2000
MAX_NOTES = 20
MAX_NOTES_BYTES = 8 * 1024

_NOTE_NAME = re.compile(NOTE_NAME)


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
    if not _NOTE_NAME.fullmatch(name):
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
