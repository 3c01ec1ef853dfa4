"""The discovery record of a server, the difference between two of them, and the server that it describes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from toolplug.catalog.definition import ToolDefinition


class ServerName(NamedTuple):
    """Which server. `tenant` is None for one of the operator's file, which every tenant has."""

    id: str
    tenant: str | None = None


class ListingFailed(Exception):
    """A server could not be asked, or gave no list of tools; the text is for the operator and holds no secret."""


class KnownServer(NamedTuple):
    """One server as it is configured now.

    `config_hash` is equal for configurations that start the same server. `listing()` starts or reaches it, gives the
    tools of every page as it sent them (JSON values, which may be anything), and leaves nothing behind; it raises
    `ListingFailed`. `timeout_s` bounds it from outside. With `pin` a tool whose definition has changed is quarantined
    until somebody accepts it.
    """

    name: ServerName
    config_hash: str
    listing: Callable[[], Awaitable[Sequence[object]]]
    timeout_s: float = 30.0
    pin: bool = False


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


class Changes(NamedTuple):
    """Names of tools, in the order of the listing that has them. A definition has changed when its digest has."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    modified: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{len(names)} {kind}" for kind, names in self._asdict().items() if names) or "no change"


NO_CHANGE = Changes((), (), ())


def changes(before: Iterable[FoundTool], after: Iterable[FoundTool]) -> Changes:
    """From one listing to the next."""
    before, after = tuple(before), tuple(after)
    if before == after:
        return NO_CHANGE
    old = {tool.name: tool.definition.ref.digest for tool in before}
    new = {tool.name: tool.definition.ref.digest for tool in after}
    return Changes(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        modified=tuple(name for name, digest in new.items() if old.get(name, digest) != digest),
    )
