"""What one gate on the way of a call says to a caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["open", "ask", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """What one gate says to this caller; `origin` is the line of the configuration, or the call, that decided.

    `ask`: it lets a call through once a person has approved that very call.
    """

    gate: str
    verdict: Verdict
    detail: str
    origin: str


def verdict(gate: str, refusal: str | None, origin: str, otherwise: str) -> GateVerdict:
    """Open, unless there is a reason why not."""
    return GateVerdict(
        gate=gate,
        verdict="open" if refusal is None else "refused",
        detail=otherwise if refusal is None else refusal,
        origin=origin,
    )
