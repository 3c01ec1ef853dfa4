"""How a tool is named by people and models: by its canonical or wire name, or by its short id."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from toolplug.catalog.catalog import Catalog
from toolplug.config.nearest import name_hint
from toolplug.errors import SavedToolsetRefused
from toolplug.toolsets.saved.saved_toolset import SavedToolset, ref_id


class ToolReference(NamedTuple):
    """At least one of the two; where there are both, they are of one tool."""

    name: str | None = None
    ref_id: str | None = None

    @classmethod
    def of(cls, name: str) -> ToolReference:
        """Both names of the tool of this canonical name."""
        return cls(name, ref_id(name))

    def fields(self) -> dict[str, object]:
        """As JSON."""
        return {"namespacedName": self.name, "refId": self.ref_id}

    def __str__(self) -> str:
        return repr(self.ref_id if self.name is None else self.name)


def resolved(reference: ToolReference, catalog: Catalog, away: Collection[str] = ()) -> str:
    """The canonical name of a tool that the catalog lists. Raises `SavedToolsetRefused`.

    `away`: names that are known though the catalog may not list them, which the refusal then says.
    """
    found = _found(reference, catalog)
    if found is None:
        if any(reference.name == name or reference.ref_id == ref_id(name) for name in away):
            mend = "act as the agent that does, or wait until it is back"
            message = f"the tool {reference} is in the toolset, but this caller does not see it now; {mend}"
            raise SavedToolsetRefused("tool_not_found", message, "toolRef")
        hint = name_hint(reference.name, catalog) if reference.name is not None else ""
        raise SavedToolsetRefused(
            "tool_not_found", f"there is no tool {reference}" + (f" ({hint})" if hint else ""), "toolRef"
        )
    return found


def resolved_or_away(reference: ToolReference, catalog: Catalog) -> str:
    """The same, but a canonical name is taken as it is where nothing is listed under it: its tool may be away."""
    found = _found(reference, catalog)
    return resolved(reference, catalog) if found is None and reference.name is None else found or str(reference.name)


def noted_tool(reference: ToolReference, toolset: SavedToolset, catalog: Catalog) -> str:
    """The canonical name of a tool of the toolset, listed or away. Raises `SavedToolsetRefused`."""
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
        raise SavedToolsetRefused("tool_reference_mismatch", message, "toolRef")
    return None if tool is None else canonical
