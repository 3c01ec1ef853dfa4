"""Which definitions of a pinned server were accepted, where they are not the ones that it lists now.

A listed tool that is not among the pins was accepted as it is: a name is accepted when it is first seen. A name that
goes keeps its pin, so that it cannot come back as something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from toolplug.discovery.record import FoundTool

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
