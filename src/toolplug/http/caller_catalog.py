"""Whose catalog: the executor of a request's caller, agent and session (CONTRACT.md section 5)."""

from __future__ import annotations

from toolplug.catalog.call import Principal
from toolplug.errors import AccessError, AgentNotAllowed, AgentRequired
from toolplug.execution.executor import ToolExecutor
from toolplug.host.host import Host
from toolplug.http.problem import HttpProblem


def executor_of(host: Host, principal: Principal, agent: str | None, session: str | None) -> ToolExecutor:
    """The caller's tools. Raises `HttpProblem` for an agent or session that the caller cannot have."""
    try:
        return host.executor_for(principal, agent=agent, session=session)
    except AccessError as error:
        raise no_access(error) from None


def no_access(error: AccessError) -> HttpProblem:
    """The error of a request that asks for a catalog that its caller cannot have."""
    if isinstance(error, AgentRequired):
        return HttpProblem(400, "agent_required", str(error), param="agent")
    if isinstance(error, AgentNotAllowed):
        return HttpProblem(403, "agent_not_allowed", str(error), param="agent")
    return HttpProblem(404, "session_not_found", str(error), param="session")
