"""What is known of a server's tools, as everybody may read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toolplug.catalog.definition import ToolDefinition

Status = Literal["never", "discovering", "success", "failed"]


@dataclass(frozen=True, slots=True)
class FoundTool:
    """One tool of a server, made safe.

    The definition's `ref` is of kind `mcp`, its source the server's id, its name the server's own. `cut` says what was
    removed from it, as `/path: why`. A `quarantined` one has changed since it was accepted, and is not to be called;
    the definition is the new one.
    """

    definition: ToolDefinition
    cut: tuple[str, ...] = ()
    quarantined: bool = False

    @property
    def name(self) -> str:
        """The server's own name for it."""
        return self.definition.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryRecord:
    """The last that is known of a server.

    `last_discovery` is when the last discovery ended, well or not, and `next_retry` when a failed one is tried again:
    RFC 3339 in UTC. `stale`: the tools are the last good ones, and what the server lists now is not known; so are those
    that were found with another configuration than the one of `config_hash`. `left_out` says which of the listed tools
    are not among them, and why.
    """

    status: Status = "never"
    tools: tuple[FoundTool, ...] = ()
    last_discovery: str | None = None
    error: str | None = None
    config_hash: str = ""
    stale: bool = False
    next_retry: str | None = None
    left_out: tuple[str, ...] = ()


NEVER = DiscoveryRecord()
