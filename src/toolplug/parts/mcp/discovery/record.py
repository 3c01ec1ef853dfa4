"""The discovery record of an MCP server: its tools as last listed, the state transitions, pins, and differences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import orjson

from toolplug.catalog.definition import ToolDefinition
from toolplug.config.units import timestamp
from toolplug.host.file.tool_servers import Status
from toolplug.parts.mcp.discovery.offers import NO_OFFERS, FoundOffers, RawOffers


class ServerName(NamedTuple):
    """The identity of a server. `tenant` is None for one of the operator's file, which every tenant has."""

    id: str
    tenant: str | None = None


class ListingFailed(Exception):
    """A server could not be reached, or returned no list of tools; the text is for the operator, without secrets."""


class KnownServer(NamedTuple):
    """One server as it is configured now.

    * `config_hash`: equal for configurations that start the same server
    * `listing`: `listing(fresh)` starts or reaches the server, and returns the tools of every page as sent (JSON).
      With `fresh` it does not use a process that runs already. It leaves nothing running. Raises `ListingFailed`.
    * `timeout_s`: the most seconds of a listing
    * `pin`: a tool that is new or has changed since the first listing is quarantined until it is accepted
    * `rediscover_s`: seconds after which a list is read again, None for never
    * `announces`: returns True if the server announces changes of its list, None while that is unknown
    * `offers`: returns what the last listing found besides tools, None before the first one
    """

    name: ServerName
    config_hash: str
    listing: Callable[[bool], Coroutine[None, None, Sequence[object]]]
    timeout_s: float = 30.0
    pin: bool = False
    rediscover_s: float | None = None
    announces: Callable[[], bool | None] = lambda: None
    offers: Callable[[], RawOffers | None] = lambda: None


@dataclass(frozen=True, slots=True)
class FoundTool:
    """One tool of a server, sanitised.

    The definition's `ref` is of kind `mcp`, with the server's id and the server's own name of the tool. `cut` lists
    what was removed, as `/path: why`. `quarantined`: its present definition is not accepted, so it must not be called;
    then `accepted` is the definition that is, None if it is not kept or the tool `is_new`.
    """

    definition: ToolDefinition
    cut: tuple[str, ...] = ()
    quarantined: bool = False
    accepted: ToolDefinition | None = None
    is_new: bool = False

    @property
    def name(self) -> str:
        return self.definition.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryRecord:
    """The result of the last discovery of a server.

    `last_discovery` is the time at which it ended, with success or not, and `next_retry` that of the next attempt after
    a failure: RFC 3339 in UTC. `stale`: the tools are from the last success, or from another configuration than that of
    `config_hash`. `left_out` lists the tools that were not kept, and why. `announces_changes` is None while unknown.
    `offers` are its prompts and resources, and its instructions.
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
    offers: FoundOffers = NO_OFFERS


NEVER = DiscoveryRecord()


class RecordChanges(NamedTuple):
    """Names of tools in the order of their listing; `modified` ones have another digest."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    modified: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{len(names)} {kind}" for kind, names in self._asdict().items() if names) or "no change"


def changes(before: Iterable[FoundTool], after: Iterable[FoundTool]) -> RecordChanges:
    """Return the differences from one listing to the next."""
    old, new = _digests(before), _digests(after)
    return RecordChanges(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        modified=tuple(name for name, digest in new.items() if old.get(name, digest) != digest),
    )


def _digests(tools: Iterable[FoundTool]) -> dict[str, str]:
    return {tool.name: tool.definition.ref.digest for tool in tools}


# Pins: the first listing of a pinned server is accepted whole. Later a tool is quarantined while its name is pinned,
# with the accepted digest if the definition has changed, or "" if the name is new. A name that is listed no longer
# keeps its pin, so that it cannot come back with another definition.

MAX_PINS = 20_000

Pins = Mapping[str, str]
"""Tool name → digest of the accepted definition; empty for a name that was never accepted."""

NO_PINS: Pins = MappingProxyType({})


class TooManyNames(Exception):
    """A server would need more than `MAX_PINS` pins."""


def pins_after(pins: Pins, before: Iterable[FoundTool], after: Iterable[FoundTool]) -> Pins:
    """Return the pins after the listing that follows `before`. Raises `TooManyNames`."""
    accepted, listed = _digests(before) | dict(pins), _digests(after)
    held = {name: digest for name, digest in accepted.items() if digest and listed.get(name) != digest}
    if len(held) > MAX_PINS:
        raise TooManyNames(f"more than {MAX_PINS} tools of a pinned server have gone or changed; accept what it lists")
    return MappingProxyType(held | {name: "" for name in listed if not accepted.get(name)})


MAX_HELD_BYTES = 512 * 1024
"""Of the accepted definitions of quarantined tools of one server; those over it are not kept, their pins are."""

Held = Mapping[str, FoundTool]
"""Tool name → the tool as it was accepted, for pinned names."""

NO_HELD: Held = MappingProxyType({})


def held_after(held: Held, before: Iterable[FoundTool], pins: Pins) -> Held:
    """Return the accepted tools of these pins, among those that were held and those listed before."""
    known = {tool.name: tool for tool in before}
    kept: dict[str, FoundTool] = {}
    size = 0
    for name, digest in pins.items():
        candidates = (
            tool for tool in (held.get(name), known.get(name)) if tool is not None and _digest(tool) == digest
        )
        tool = next(candidates, None)
        if tool is not None and size + _size(tool.definition) <= MAX_HELD_BYTES:
            size += _size(tool.definition)
            kept[name] = FoundTool(tool.definition, tool.cut)
    return MappingProxyType(kept)


def _digest(tool: FoundTool) -> str:
    return tool.definition.ref.digest


def _size(definition: ToolDefinition) -> int:
    output = definition.output_schema
    shown = orjson.dumps([definition.icons, dict(definition.meta)])
    texts = (definition.description, definition.parameters.text, "" if output is None else output.text, shown)
    return sum(map(len, texts))


def quarantining(tools: Iterable[FoundTool], pins: Pins, held: Held = NO_HELD) -> tuple[FoundTool, ...]:
    """Return the tools with the pinned ones quarantined; those that need no change stay the same objects."""
    return tuple(_judge(tool, pins.get(tool.name), held.get(tool.name)) for tool in tools)


def _judge(tool: FoundTool, pin: str | None, held: FoundTool | None) -> FoundTool:
    """Return the tool with its quarantine; `pin` is None for one that is accepted."""
    quarantined, is_new = pin is not None, pin == ""
    accepted = held.definition if held is not None and quarantined else None
    if (tool.quarantined, tool.is_new, tool.accepted) == (quarantined, is_new, accepted):
        return tool
    return replace(tool, quarantined=quarantined, is_new=is_new, accepted=accepted)


def hold_back(record: DiscoveryRecord, locked: Mapping[str, str] | None) -> DiscoveryRecord:
    """Return the record with those tools quarantined that are not as they were locked; None: nothing is locked."""
    if locked is None or all(tool.quarantined or locked.get(tool.name) == _digest(tool) for tool in record.tools):
        return record
    held = (
        tool if tool.quarantined or locked.get(tool.name) == _digest(tool) else _judge(tool, "*", None)
        for tool in record.tools
    )
    return replace(record, tools=tuple(held))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The record with the state of its discovery. Times are seconds on the store's clock.

    `body` is the record's tools as bytes, found at `found_at`. `attempt` names the listing in progress in any process;
    its lease ends at `believed_until`, and only its own result ends it. The last listing began at `began_at`. After
    `failures` in a row the next attempt is at `retry_at`. `held` are accepted definitions of quarantined tools.
    """

    record: DiscoveryRecord = NEVER
    body: bytes = b""
    found_at: float = 0.0
    pins: Pins = field(default_factory=lambda: NO_PINS)
    held: Held = field(default_factory=lambda: NO_HELD)
    attempt: str = ""
    believed_until: float = 0.0
    began_at: float = 0.0
    failures: int = 0
    retry_at: float | None = None

    @property
    def config_hash(self) -> str:
        """The hash of the configuration that the record is about."""
        return self.record.config_hash


NOTHING = ServerState()


@dataclass(frozen=True, slots=True)
class Listing:
    """The sanitised tools of one listing, the same as bytes, and what was left out; `offers` is None if not listed."""

    tools: tuple[FoundTool, ...] = ()
    body: bytes = b""
    left_out: tuple[str, ...] = ()
    offers: FoundOffers | None = None


def begin_listing(kept: ServerState, config_hash: str, *, attempt: str, at: float, until: float) -> ServerState:
    """Return the state with a listing of this configuration in progress."""
    record = discovering(kept.record, config_hash)
    return replace(kept, record=record, attempt=attempt, began_at=at, believed_until=until)


def discovering(record: DiscoveryRecord, config_hash: str) -> DiscoveryRecord:
    """Return the record as it is while a listing of this configuration is due or in progress."""
    return replace(
        record,
        status="discovering",
        config_hash=config_hash,
        stale=bool(record.tools) and (record.stale or record.config_hash != config_hash),
        error=None,
        next_retry=None,
    )


def record_success(
    kept: ServerState, config_hash: str, listing: Listing, *, at: float, pin: bool, announces: bool | None = None
) -> ServerState:
    """Return the state after a successful listing. Raises `TooManyNames`."""
    is_first = not kept.record.tools and not kept.found_at
    pins = NO_PINS if is_first or not pin else pins_after(kept.pins, kept.record.tools, listing.tools)
    held = held_after(kept.held, kept.record.tools, pins)
    record = DiscoveryRecord(
        status="success",
        tools=quarantining(listing.tools, pins, held),
        last_discovery=timestamp(at),
        config_hash=config_hash,
        left_out=listing.left_out,
        announces_changes=announces,
        offers=kept.record.offers if listing.offers is None else listing.offers,
    )
    return ServerState(record=record, body=listing.body, found_at=at, pins=pins, held=held, began_at=kept.began_at)


def record_failure(kept: ServerState, config_hash: str, error: str, *, at: float, retry_at: float) -> ServerState:
    """Return the state after a failed listing: the last good tools stay, as stale ones."""
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
    """Return `kept`, which another process wrote, with the tools of `mine` as stale ones if those are newer.

    A success of the other process stays as it is.
    """
    if kept.record.status == "success" or mine.found_at <= kept.found_at:
        return kept
    newer = mine.record
    record = replace(kept.record, tools=newer.tools, offers=newer.offers, stale=True, left_out=newer.left_out)
    return replace(kept, record=record, body=mine.body, found_at=mine.found_at, pins=mine.pins, held=mine.held)


def accept_definitions(kept: ServerState, names: Collection[str] | None) -> ServerState:
    """Return the state with these quarantined definitions accepted; None accepts all and drops every pin."""
    listed = {tool.name for tool in kept.record.tools}
    chosen = kept.pins.keys() if names is None else listed.intersection(names)
    pins = MappingProxyType({name: digest for name, digest in kept.pins.items() if name not in chosen})
    held = MappingProxyType({name: tool for name, tool in kept.held.items() if name in pins})
    record = replace(kept.record, tools=quarantining(kept.record.tools, pins, held))
    return replace(kept, record=record, pins=pins, held=held)
