"""What a host gives its sessions: the operator's limits and rules, and what stands around each of their calls."""

from __future__ import annotations

from toolplug.host.file.configuration import Configuration
from toolplug.providers.planning import Surroundings
from toolplug.providers.registry import FunctionRegistry
from toolplug.sessions.plans import Planner, SessionPolicy


def session_planner(configuration: Configuration, around: Surroundings, registry: FunctionRegistry) -> Planner:
    """Makes the plans of session tools under this configuration; host-wide hooks are those of the registry."""
    settings = configuration.settings
    return Planner(
        around.ledger,
        around.lanes,
        replay=around.replay,
        approvals=around.approvals,
        artifacts=around.artifacts,
        hooks=lambda: registry.hooks,
        limits=settings.limits,
        limits_origin=lambda knob: configuration.origin("limits", knob),
        policy=SessionPolicy(policy=settings.sessions.policy, origin=configuration.origin("sessions", "policy")),
    )
