"""What all sessions of one host have counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from toolplug.execution.series import CallSeries


@dataclass(slots=True, kw_only=True)
class SessionCounters:
    """Plain counters, read when they are scraped.

    `changes`: (register or update, its outcome). `relayed`: requests by how they ended, with the time from the first
    sending to the answer. `resyncs`: by reason. `events`: published ones by name, once however many readers there are.
    """

    created: int = 0
    ended: Counter[str] = field(default_factory=Counter[str])
    changes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    events: Counter[str] = field(default_factory=Counter[str])
    resyncs: Counter[str] = field(default_factory=Counter[str])
    relayed: CallSeries = field(default_factory=lambda: CallSeries("_session", "relay"))
