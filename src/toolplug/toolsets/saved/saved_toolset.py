"""A saved toolset: its owner, and its tools in order by canonical name or short id, with notes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from toolplug.catalog.call import CallContext, Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.exact_json import Answer
from toolplug.config.nearest import name_hint
from toolplug.errors import ApiError

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
    """Raise `ApiError` where a toolset cannot be called so, or have just these tools."""
    if not is_toolset_name(name):
        message = f"{name[:60]!r} is no name of a toolset; 2 to 50 of the characters a-z 0-9 - are allowed"
        raise ApiError("invalid_name", message, "name")
    if name in RESERVED:
        raise ApiError("invalid_name", f"the name {name!r} is taken by the routes; give another", "name")
    if not 1 <= len(tools) <= MAX_TOOLS:
        message = f"a toolset has 1 to {MAX_TOOLS} tools, not {len(tools)}"
        raise ApiError("too_many_tools", message, "tools")
    if len(set(tools)) < len(tools):
        twice = next(tool for tool in tools if tools.count(tool) > 1)
        raise ApiError("duplicate_tool", f"duplicate tool {twice!r} in the toolset", "tools")


class ToolRefAnswer(Answer):
    """A tool by both of its names."""

    namespacedName: str
    refId: str


class ToolReference(NamedTuple):
    """At least one of the two; where there are both, they are of one tool."""

    name: str | None = None
    ref_id: str | None = None

    @classmethod
    def of(cls, name: str) -> ToolReference:
        """Both names of the tool of this canonical name."""
        return cls(name, ref_id(name))

    def fields(self) -> ToolRefAnswer:
        """As JSON, where there are both."""
        return cast("ToolRefAnswer", {"namespacedName": self.name, "refId": self.ref_id})

    def __str__(self) -> str:
        return repr(self.ref_id if self.name is None else self.name)


def resolved(reference: ToolReference, catalog: Catalog, away: Collection[str] = ()) -> str:
    """The canonical name of a tool that the catalog lists. Raises `ApiError`.

    `away`: names that are known though the catalog may not list them, which the refusal then says.
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
    """The same, but a canonical name is taken as it is where nothing is listed under it: its tool may be away."""
    found = _found(reference, catalog)
    return resolved(reference, catalog) if found is None and reference.name is None else found or str(reference.name)


def noted_tool(reference: ToolReference, toolset: SavedToolset, catalog: Catalog) -> str:
    """The canonical name of a tool of the toolset, listed or away. Raises `ApiError`."""
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
    """Who has toolsets, and may have one of them equipped. In a session it is another owner than outside of it."""

    tenant: str
    subject: str
    session: str | None = None

    @property
    def key(self) -> str:
        """A part of store keys, which says the session and hides who it is: names may be any text."""
        who = hashlib.sha256(ascii((self.tenant, self.subject)).encode()).hexdigest()[:32]
        return f"own/{who}" if self.session is None else f"session/{self.session}/{who}"


class Caller(NamedTuple):
    """Who asks, and through which agent and session. `request_id` is the one of audit lines."""

    principal: Principal
    agent: str | None = None
    session: str | None = None
    request_id: str = ""

    @classmethod
    def of(cls, context: CallContext) -> Caller:
        """Who makes a tool call."""
        return cls(context.principal, context.agent, context.session, context.request_id)

    @property
    def owner(self) -> ToolsetOwner:
        """Whose toolsets are asked for."""
        return ToolsetOwner(self.principal.tenant, self.principal.subject, self.session)
