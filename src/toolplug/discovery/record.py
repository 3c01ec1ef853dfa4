"""The discovery record of a server: what is known of its tools, each transition, pins, and differences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from toolplug.catalog.definition import ToolDefinition
from toolplug.execution.accounting import timestamp


class ServerName(NamedTuple):
    """Which server. `tenant` is None for one of the operator's file, which every tenant has."""

    id: str
    tenant: str | None = None


class ListingFailed(Exception):
    """A server could not be asked, or gave no list of tools; the text is for the operator and holds no secret."""


def _unknown() -> bool | None:
    return None


class KnownServer(NamedTuple):
    """One server as it is configured now.

    `config_hash` is equal for configurations that start the same server. `listing(fresh)` starts or reaches it, gives
    the tools of every page as it sent them (JSON values, which may be anything), and leaves nothing behind; it raises
    `ListingFailed`. Where it is `fresh`, a process that runs already is not asked. `announces()` is whether the server
    announces changes of its list, None while that is not known. `timeout_s` bounds a listing from outside, and a list
    that is `rediscover_s` old is read again. With `pin` a tool that is new, or whose definition has
    changed, since the server was first listed is quarantined until somebody accepts it.
    """

    name: ServerName
    config_hash: str
    listing: Callable[[bool], Awaitable[Sequence[object]]]
    timeout_s: float = 30.0
    pin: bool = False
    rediscover_s: float | None = None
    announces: Callable[[], bool | None] = _unknown


Status = Literal["never", "discovering", "success", "failed"]


@dataclass(frozen=True, slots=True)
class FoundTool:
    """One tool of a server, made safe.

    The definition's `ref` is of kind `mcp`, its source the server's id, its name the server's own. `cut` says what was
    removed from it, as `/path: why`. A `quarantined` one was not accepted as it is now, and is not to be called;
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
    are not among them, and why. `announces_changes`: does the server say when its list changes; None: not known.
    """

    status: Status = "never"
    tools: tuple[FoundTool, ...] = ()
    last_discovery: str | None = None
    error: str | None = None
    config_hash: str = ""
    stale: bool = False
    next_retry: str | None = None
    left_out: tuple[str, ...] = ()
    announces_changes: bool | None = None


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


# Which tools of a pinned server wait for somebody, and what was accepted under their names.
#
# What a server lists first is accepted. From then on a listed tool is accepted unless its name is among the pins: with
# the digest of its accepted definition where it has another one now, or with none where the name is new. An accepted
# name that goes keeps its pin, so that it cannot come back as something else.

MAX_PINS = 20_000

Pins = Mapping[str, str]
"""Name → digest of the accepted definition; empty for a name that was never accepted."""

NO_PINS: Pins = MappingProxyType({})


class TooManyNames(Exception):
    """More names have come and gone than are remembered."""


def pins_after(pins: Pins, before: Iterable[FoundTool], after: Iterable[FoundTool]) -> Pins:
    """The pins when one listing follows another. Raises `TooManyNames`."""
    before, after = tuple(before), tuple(after)
    if before == after:
        return pins
    accepted = {tool.name: tool.definition.ref.digest for tool in before} | dict(pins)
    listed = {tool.name: tool.definition.ref.digest for tool in after}
    held = {name: digest for name, digest in accepted.items() if digest and listed.get(name) != digest}
    if len(held) > MAX_PINS:
        raise TooManyNames(f"more than {MAX_PINS} tools of a pinned server have gone or changed; accept what it lists")
    return MappingProxyType(held | {name: "" for name in listed if not accepted.get(name)})


def quarantining(tools: Iterable[FoundTool], pins: Pins) -> tuple[FoundTool, ...]:
    """The tools, those whose definition is not the accepted one in quarantine."""
    return tuple(
        tool
        if tool.quarantined == (tool.name in pins)
        else FoundTool(tool.definition, tool.cut, quarantined=not tool.quarantined)
        for tool in tools
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The record, and what only discovery needs to know. Times are on the store's clock.

    `body` is the record's tools as bytes, and `found_at` when they were found. `attempt` names the listing that is
    under way, in whichever process; it is believed in until `believed_until`, and only its own result ends it. After
    `failures` in a row the next try is at `retry_at`.
    """

    record: DiscoveryRecord = NEVER
    body: bytes = b""
    found_at: float = 0.0
    pins: Pins = field(default_factory=lambda: NO_PINS)
    attempt: str = ""
    believed_until: float = 0.0
    failures: int = 0
    retry_at: float | None = None

    @property
    def config_hash(self) -> str:
        """The configuration that it is about."""
        return self.record.config_hash


NOTHING = ServerState()


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of one listing, made safe, and the same as bytes."""

    tools: tuple[FoundTool, ...] = ()
    body: bytes = b""
    left_out: tuple[str, ...] = ()


def begun(kept: ServerState, config_hash: str, *, attempt: str, until: float) -> ServerState:
    """With a listing of this configuration under way."""
    return replace(kept, record=discovering(kept.record, config_hash), attempt=attempt, believed_until=until)


def discovering(record: DiscoveryRecord, config_hash: str) -> DiscoveryRecord:
    """The record while a listing of this configuration is under way or about to be."""
    return replace(
        record,
        status="discovering",
        config_hash=config_hash,
        stale=bool(record.tools) and (record.stale or record.config_hash != config_hash),
        error=None,
        next_retry=None,
    )


def succeeded(
    kept: ServerState, config_hash: str, listing: Listing, *, at: float, pin: bool, announces: bool | None = None
) -> ServerState:
    """With the result of a listing. Raises `TooManyNames`."""
    is_first = not kept.record.tools and not kept.found_at
    pins = NO_PINS if is_first or not pin else pins_after(kept.pins, kept.record.tools, listing.tools)
    record = DiscoveryRecord(
        status="success",
        tools=quarantining(listing.tools, pins),
        last_discovery=timestamp(at),
        config_hash=config_hash,
        left_out=listing.left_out,
        announces_changes=announces,
    )
    return ServerState(record=record, body=listing.body, found_at=at, pins=pins)


def failed(kept: ServerState, config_hash: str, error: str, *, at: float, retry_at: float) -> ServerState:
    """With a listing that failed: the last good tools stay, and are stale."""
    record = replace(
        kept.record,
        status="failed",
        last_discovery=timestamp(at),
        error=error,
        config_hash=config_hash,
        stale=bool(kept.record.tools),
        next_retry=timestamp(retry_at),
    )
    return replace(kept, record=record, attempt="", believed_until=0.0, failures=kept.failures + 1, retry_at=retry_at)


def with_newer_tools(kept: ServerState, mine: ServerState) -> ServerState:
    """What another process has written; with the tools that were found here, if it knows none that are as new.

    They are stale then, whichever configuration they were found with. A success is what it is.
    """
    if kept.record.status == "success" or mine.found_at <= kept.found_at:
        return kept
    record = replace(kept.record, tools=mine.record.tools, stale=True, left_out=mine.record.left_out)
    return replace(kept, record=record, body=mine.body, found_at=mine.found_at, pins=mine.pins)


def accepted(kept: ServerState, names: Collection[str] | None) -> ServerState:
    """With these quarantined definitions accepted; None: all that is listed, and what has gone is forgotten."""
    listed = {tool.name for tool in kept.record.tools}
    chosen = kept.pins.keys() if names is None else listed.intersection(names)
    pins = MappingProxyType({name: digest for name, digest in kept.pins.items() if name not in chosen})
    record = replace(kept.record, tools=quarantining(kept.record.tools, pins))
    return replace(kept, record=record, pins=pins)
