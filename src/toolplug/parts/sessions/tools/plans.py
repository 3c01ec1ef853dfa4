"""Plans of session tools, whose calls go to the plugin of the session."""

from __future__ import annotations

from dataclasses import replace

from toolplug.catalog.definition import ALWAYS, Offered, ToolDefinition
from toolplug.catalog.plan import Tool
from toolplug.execution.plans import CallServices, PlanBuilder, PlanSource, ToolPolicy
from toolplug.execution.resolved_limits import DefaultTimeout, LimitLevel
from toolplug.parts.sessions.tools.session_tool import KIND, SOURCE

DEADLINE_S = 30.0
LONGEST_S = 300.0
"""Seconds that a request may wait for its answer, by default and at most, unless `limits.timeout` is set
(reference/sessions.md)."""

_TIMEOUT = DefaultTimeout(DEADLINE_S, LONGEST_S, "default of session tools")

ALLOWED = ToolPolicy()


class SessionPlanner:
    """Builds the tools of all sessions under one policy; if the policy `hides` them, no session lists any.

    `offered` is how models are offered them.
    """

    def __init__(self, services: CallServices, policy: ToolPolicy = ALLOWED, offered: Offered = ALWAYS) -> None:
        self.services: CallServices = services
        self.hides: bool = policy.policy == "disable"
        self._policy = policy
        self._offered = offered
        self._builder = PlanBuilder(services, LimitLevel((KIND, SOURCE)), of_one_tenant=True)

    def tool(self, definition: ToolDefinition, source: PlanSource) -> Tool:
        """Return the tool of one session; the target of the source is its relay."""
        plan = self._builder.build(
            definition,
            source,
            self._policy,
            default_timeout=_TIMEOUT,
            output=definition.output_schema,
        )
        same = definition.offered == self._offered
        return Tool(definition if same else replace(definition, offered=self._offered), plan)
