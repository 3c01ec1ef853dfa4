"""Which failures are expected, and whether a run found those and no others."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from tests.conformance.suite import BAD, Check, Leg

WIRE = "wire-schema-valid"


class Expected(BaseModel):
    """Failures that have one reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    leg: Leg
    because: Literal["not-offered", "suite", "sdk"]
    reason: Annotated[str, Field(min_length=20)]
    lines: Annotated[tuple[str, ...], Field(min_length=1)]
    capability: str | None = None


def expected(leg: Leg) -> list[Expected]:
    """The part of the baseline that is about servers or clients."""
    rows = tomllib.loads(Path(__file__).with_name("baseline.toml").read_text("utf-8"))["expected"]
    return [row for row in (Expected(**row) for row in rows) if row.leg == leg]


def judged(checks: Iterable[Check], baseline: Iterable[Expected]) -> list[str]:
    """What is not as expected: failures that no line covers, and lines that cover nothing."""
    checks = list(checks)
    bad = [check for check in checks if check.status in BAD]
    lines = [line for row in baseline for line in row.lines]
    doubled = sorted({line for line in lines if lines.count(line) > 1})
    run = {check.scenario for check in checks} | {f"{check.scenario}:{check.id}" for check in checks}
    unneeded = [line for line in lines if line in run and not any(_covers(line, check) for check in bad)]
    return [
        *(f"twice in the baseline: {line}" for line in doubled),
        *(f"in the baseline, and nothing fails: {line}" for line in unneeded),
        *(
            f"{check.status} {check.scenario}:{check.id} {check.message}"
            for check in bad
            if not any(_covers(line, check) for line in lines)
        ),
    ]


def _covers(line: str, check: Check) -> bool:
    scenario, _, one = line.partition(":")
    return scenario == check.scenario and (one == check.id if one else check.id != WIRE)
