"""The gate of what a caller has equipped: it leaves out every tool that the toolset does not have."""

from __future__ import annotations

from typing import NamedTuple

from toolplug.catalog.plan import Tool
from toolplug.host.gates.verdict import GateVerdict, verdict
from toolplug.toolsets.saved.equipped import Stays
from toolplug.toolsets.saved.saved_toolset import SavedToolset


class EquippedGate(NamedTuple):
    """A caller's equipped toolset, and which tools are listed all the same."""

    toolset: SavedToolset
    stays: Stays

    def verdict(self, tool: Tool) -> GateVerdict:
        """Does the choice leave the tool in."""
        name = self.toolset.name
        left_in = tool.definition.name in self.toolset.tools or self.stays(tool)
        refusal = None if left_in else f"saved toolset {name!r} is equipped, and does not have this tool"
        detail = f"saved toolset {name!r} is equipped, and leaves it in"
        return verdict("equipped", refusal, f"POST /api/toolsets/{name}/equip", detail)
