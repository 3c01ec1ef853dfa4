"""Names that only some providers need. Their module is imported when one of them is asked for.

prometheus-client takes 30 ms to import, asyncio 20, Starlette's routes 14 and jsonschema-rs 8. A module that only
defines tools needs none of them. Type checkers read the same list in `library_types.pyi`.
"""

from __future__ import annotations

from collections.abc import Callable

from toolplug.exports import loader

HOMES = {
    "AbandonedCallLimit": "toolplug.execution.limiters",
    "AgentTools": "toolplug.toolsets.agent_tools",
    "Artifacts": "toolplug.host.artifacts",
    "BoundRoute": "toolplug.providers.routes",
    "CallCounters": "toolplug.execution.accounting",
    "CallHooks": "toolplug.execution.call_hooks",
    "CallServices": "toolplug.execution.plans",
    "Choice": "toolplug.toolsets.agent_tools",
    "ClusterLimits": "toolplug.cluster.limits",
    "Collector": "prometheus_client.registry",
    "CollectorRegistry": "prometheus_client",
    "Configuration": "toolplug.host.file.configuration",
    "ConversationTools": "toolplug.search.conversation",
    "CounterMetricFamily": "prometheus_client.core",
    "FairThreads": "toolplug.runtime.threads",
    "GaugeMetricFamily": "prometheus_client.core",
    "HistogramMetricFamily": "prometheus_client.core",
    "HostApprovals": "toolplug.part_protocols.approvals",
    "HostPart": "toolplug.part_protocols.host_part",
    "HostSession": "toolplug.part_protocols.host_part",
    "HostSessions": "toolplug.part_protocols.host_part",
    "LockCheck": "toolplug.locking.reader",
    "Metric": "prometheus_client.metrics_core",
    "ModelTools": "toolplug.execution.executor",
    "Policy": "toolplug.execution.plans",
    "Processes": "toolplug.cluster.processes",
    "Quotas": "toolplug.host.quotas.settings",
    "ReferencingError": "jsonschema_rs",
    "RegexOptions": "jsonschema_rs",
    "Replays": "toolplug.execution.idempotency",
    "ResolvedLimits": "toolplug.execution.resolved_limits",
    "RevokedGrant": "toolplug.part_protocols.approvals",
    "Route": "starlette.routing",
    "Sealer": "toolplug.host.keys",
    "SourceSwitch": "toolplug.execution.limiters",
    "Ticket": "toolplug.part_protocols.approvals",
    "ToolExecutor": "toolplug.execution.executor",
    "Typer": "typer",
    "UnknownCalls": "toolplug.execution.run",
    "ValidationError": "jsonschema_rs",
    "ValidationErrorKind": "jsonschema_rs",
    "Validator": "jsonschema_rs",
    "choose_encoder": "prometheus_client.exposition",
    "compile_path": "starlette.routing",
    "in_own_thread": "toolplug.runtime.threads",
    "in_slices": "toolplug.runtime.tasks",
    "meta": "jsonschema_rs",
    "timeout_at": "asyncio",
    "validator_for": "jsonschema_rs",
}

__getattr__: Callable[[str], object] = loader("toolplug.library_types", HOMES)
