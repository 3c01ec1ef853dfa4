"""How long a state machine is played."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

AT_LENGTH = 3 if os.environ.get("TOOLPLUG_SHARES") == "all" else 1
"""How many times as many plays a long test makes in `make judge-many`."""


def playing(examples: int, steps: int, **more: object) -> settings:
    """So many plays of so many steps, however slow the machine is; `more` are Hypothesis' own."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **more,  # type: ignore[arg-type]
    )
