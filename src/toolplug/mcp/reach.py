"""A way to a server while its configuration stays what it is: the line that calls take, and the switch before it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from toolplug.catalog.counted import counted
from toolplug.execution.switch import SourceSwitch
from toolplug.mcp.line import Line

_LOG = logging.getLogger("toolplug.mcp")


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """Ended once, by `retire` or by `end`; no plan over it runs from then on, wherever it is kept."""

    line: Line
    switch: SourceSwitch = field(default_factory=SourceSwitch)

    def off(self) -> None:
        """Take no more calls; those that run go on."""
        self.switch.open = False

    async def retire(self, drain_s: float) -> None:
        """End it when the calls that run have ended, at most after this time."""
        self.off()
        if not await self.switch.drained(drain_s):
            _LOG.warning("an MCP server is ended with %s still running", counted(self.switch.running, "call"))
        await self.line.aclose()

    async def end(self) -> None:
        """End it now: the calls that run are answered as those of a server that is down."""
        self.off()
        await self.line.aclose()
