"""The plans of session tools: calls that go to an application elsewhere."""

from __future__ import annotations

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Tool
from toolplug.execution.plans import CallServices, PlanBuilder, PlanSource, ToolPolicy
from toolplug.execution.resolved_limits import LimitLevel
from toolplug.sessions.session_tool import KIND, SOURCE

DEADLINE_S = 30.0
LONGEST_S = 300.0
"""How long a request may wait for its answer: where its caller says nothing, and at most (reference/sessions.md)."""

ALLOWED = ToolPolicy()


class Planner:
    """Makes the tools of sessions out of their definitions, under the policy that holds for all of them.

    Where it `hides` them, no session lists any.
    """

    def __init__(self, services: CallServices, policy: ToolPolicy = ALLOWED) -> None:
        self.services: CallServices = services
        self.hides: bool = policy.policy == "disable"
        self._policy = policy
        self._builder = PlanBuilder(services, LimitLevel((KIND, SOURCE)), of_one_tenant=True)

    def tool(self, definition: ToolDefinition, source: PlanSource) -> Tool:
        """The tool of one session, whose relay is the target of the source."""
        plan = self._builder.build(definition, source, self._policy, author_timeout_s=DEADLINE_S, longest_s=LONGEST_S)
        return Tool(definition, plan)
