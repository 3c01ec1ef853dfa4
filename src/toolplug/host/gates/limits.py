"""What breakers, rates and concurrency limits would say to a call now, without counting one."""

from __future__ import annotations

from collections.abc import Iterator

from toolplug.catalog.plan import Plan
from toolplug.execution.knobs import DEFAULT_ORIGIN
from toolplug.execution.results import rounded
from toolplug.host.gates.verdict import GateVerdict, verdict

_GATES = {"max_concurrency": "concurrency"}


def limit_gates(plan: Plan) -> Iterator[GateVerdict]:
    """The breaker of abandoned calls, then each level's counters, in the order in which a call meets them."""
    running, limit = plan.brake.running, plan.brake.limit
    refusal = f"{running} calls were given up and still run" if running >= limit else None
    yield verdict("breaker", refusal, DEFAULT_ORIGIN, f"{running} of at most {limit} calls given up and still running")
    # Settings of one knob stand in the order of its limiters: the most specific level first.
    origins = {knob: iter([item.origin for item in plan.settings if item.knob == knob]) for knob in _knobs(plan)}
    for limiter in plan.limiters:
        said = limiter.refusal()
        text = None if said is None else f"{said.what}, retry in {rounded(said.retry_after_s)} s"
        origin = next(origins[limiter.knob], DEFAULT_ORIGIN)
        yield verdict(_GATES.get(limiter.knob, limiter.knob), text, origin, limiter.used)


def _knobs(plan: Plan) -> set[str]:
    return {limiter.knob for limiter in plan.limiters}
