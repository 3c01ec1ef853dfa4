"""The state of one server's discovery, each transition of it, and the accepted definitions of a pinned server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from toolplug.discovery.record import NEVER, DiscoveryRecord, FoundTool
from toolplug.execution.accounting import timestamp

# Which definitions of a pinned server were accepted, where they are not the ones that it lists now.
#
# A listed tool that is not among the pins was accepted as it is: a name is accepted when it is first seen. A name that
# goes keeps its pin, so that it cannot come back as something else.

MAX_PINS = 20_000

Pins = Mapping[str, str]
"""Name → digest of the accepted definition."""

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
    held = {name: digest for name, digest in accepted.items() if listed.get(name) != digest}
    if len(held) > MAX_PINS:
        raise TooManyNames(f"more than {MAX_PINS} tools of a pinned server have gone or changed; accept what it lists")
    return MappingProxyType(held)


def quarantining(tools: Iterable[FoundTool], pins: Pins) -> tuple[FoundTool, ...]:
    """The tools, those whose accepted definition is another one in quarantine."""
    return tuple(
        tool
        if tool.quarantined == (tool.name in pins)
        else FoundTool(tool.definition, tool.cut, quarantined=not tool.quarantined)
        for tool in tools
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
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


NOTHING = Kept()


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of one listing, made safe, and the same as bytes."""

    tools: tuple[FoundTool, ...] = ()
    body: bytes = b""
    left_out: tuple[str, ...] = ()


def begun(kept: Kept, config_hash: str, *, attempt: str, until: float) -> Kept:
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


def succeeded(kept: Kept, config_hash: str, listing: Listing, *, at: float, pin: bool) -> Kept:
    """With the result of a listing. Raises `TooManyNames`."""
    pins = pins_after(kept.pins, kept.record.tools, listing.tools) if pin else NO_PINS
    record = DiscoveryRecord(
        status="success",
        tools=quarantining(listing.tools, pins),
        last_discovery=timestamp(at),
        config_hash=config_hash,
        left_out=listing.left_out,
    )
    return Kept(record=record, body=listing.body, found_at=at, pins=pins)


def failed(kept: Kept, config_hash: str, error: str, *, at: float, retry_at: float) -> Kept:
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


def with_newer_tools(kept: Kept, mine: Kept) -> Kept:
    """What another process has written; with the tools that were found here, if it knows none that are as new.

    They are stale then, whichever configuration they were found with. A success is what it is.
    """
    if kept.record.status == "success" or mine.found_at <= kept.found_at:
        return kept
    record = replace(kept.record, tools=mine.record.tools, stale=True, left_out=mine.record.left_out)
    return replace(kept, record=record, body=mine.body, found_at=mine.found_at, pins=mine.pins)


def accepted(kept: Kept, names: Collection[str] | None) -> Kept:
    """With these quarantined definitions accepted; None: all that is listed, and what has gone is forgotten."""
    listed = {tool.name for tool in kept.record.tools}
    chosen = kept.pins.keys() if names is None else listed.intersection(names)
    pins = MappingProxyType({name: digest for name, digest in kept.pins.items() if name not in chosen})
    record = replace(kept.record, tools=quarantining(kept.record.tools, pins))
    return replace(kept, record=record, pins=pins)
