"""Relays with one mistake each, which the simulation must find."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.nemeses.relay_world import Parts, WatchedRelay
from tests.nemeses.replicas import Way

from toolplug.cluster.processes import Processes
from toolplug.parts.sessions.peers.shared_records import CallEnd
from toolplug.parts.sessions.relay import Relay, RelayedRequest


class _EndsBlindly(Way):
    """The end of a call replaces the end that it has."""

    async def commit(self, key: str, value: bytes | None, *, expected: int | None = None, **more: Any) -> int:
        return await super().commit(key, value, expected=None if key.endswith("/end") else expected, **more)


class _EndsAtTheDeadline(WatchedRelay):
    """The caller is told of the deadline, whatever another process has accepted."""

    async def _end_unless_accepted(self, request: RelayedRequest, reason: str) -> CallEnd | None:
        return None


class _ChecksNoLease(WatchedRelay):
    """A process whose lease has lapsed sends requests."""

    @property
    def delivers(self) -> bool:
        """True while the newest stream is here, as far as this process knows."""
        return Relay.delivers.__get__(self)


class _LosesMany(Way):
    """Half of the pushes are lost, which a look makes up for."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more, lost=0.5)


class _NeverLooks(Processes):
    """What was not heard is not found."""

    def listen(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Call nothing."""


SEEDED = {
    "a blind write of the end": (Parts(way=_EndsBlindly), "more than one answer was accepted"),
    "a deadline without compare-and-swap": (
        Parts(relay=_EndsAtTheDeadline),
        "was accepted, and its caller got timeout",
    ),
    "no lease check": (Parts(relay=_ChecksNoLease, killed=0.0), "after its lease had lapsed"),
    "no look": (Parts(way=_LosesMany, processes=_NeverLooks), "has not arrived"),
}
"""What is wrong → the world in which it is, and the violation that shows it."""
