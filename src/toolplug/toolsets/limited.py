"""The limits of a toolset, put around its tools between those of their providers and their own."""

from __future__ import annotations

from dataclasses import replace

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Artifacts, Plan
from toolplug.execution.knobs import Basis, Layer
from toolplug.execution.ledger import Ledger

_POLICY = "policy"


def limited(catalog: Catalog, layer: Layer, ledger: Ledger, artifacts: Artifacts | None) -> Catalog:
    """The same tools under the limits of this level, too (CONTRACT.md section 2).

    A timeout or size of a tool's own rule stays; a counter counts the calls of all these tools together, whoever makes
    them. Tools whose limits are drawn from no levels are left as they are.
    """

    def change(_: ToolDefinition, plan: Plan) -> Plan:
        if not isinstance(plan.basis, Basis):
            return plan
        held = plan.basis.within(layer).effective(ledger)
        policy = [item for item in plan.settings if item.knob == _POLICY]
        return replace(
            plan,
            timeout_s=held.timeout_s,
            max_result_bytes=held.max_result_bytes,
            limiters=held.limiters,
            retry=held.retry,
            artifacts=artifacts if held.artifacts else None,
            settings=(*policy, *held.settings),
            basis=held.basis,
        )

    return catalog.planned(change)
