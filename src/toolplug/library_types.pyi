from asyncio import timeout_at

from jsonschema_rs import (
    ReferencingError,
    RegexOptions,
    ValidationError,
    ValidationErrorKind,
    Validator,
    meta,
    validator_for,
)
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.routing import Route, compile_path
from typer import Typer

from toolplug.cluster.limits import ClusterLimits
from toolplug.cluster.processes import Processes
from toolplug.execution.accounting import CallCounters
from toolplug.execution.call_hooks import CallHooks
from toolplug.execution.executor import ModelTools, ToolExecutor
from toolplug.execution.idempotency import Replays
from toolplug.execution.limiters import AbandonedCallLimit, SourceSwitch
from toolplug.execution.plans import CallServices, Policy
from toolplug.execution.resolved_limits import ResolvedLimits
from toolplug.execution.run import UnknownCalls
from toolplug.host.artifacts import Artifacts
from toolplug.host.file.configuration import Configuration
from toolplug.host.keys import Sealer
from toolplug.host.quotas.settings import Quotas
from toolplug.locking.reader import LockCheck
from toolplug.part_protocols.approvals import HostApprovals, RevokedGrant, Ticket
from toolplug.part_protocols.host_part import HostPart, HostSession, HostSessions
from toolplug.providers.routes import BoundRoute
from toolplug.runtime.tasks import in_slices
from toolplug.runtime.threads import FairThreads, in_own_thread
from toolplug.search.conversation import ConversationTools
from toolplug.toolsets.agent_tools import AgentTools, Choice

__all__ = [
    "AbandonedCallLimit",
    "AgentTools",
    "Artifacts",
    "BoundRoute",
    "CallCounters",
    "CallHooks",
    "CallServices",
    "Choice",
    "ClusterLimits",
    "Collector",
    "CollectorRegistry",
    "Configuration",
    "ConversationTools",
    "CounterMetricFamily",
    "FairThreads",
    "GaugeMetricFamily",
    "HistogramMetricFamily",
    "HostApprovals",
    "HostPart",
    "HostSession",
    "HostSessions",
    "LockCheck",
    "Metric",
    "ModelTools",
    "Policy",
    "Processes",
    "Quotas",
    "ReferencingError",
    "RegexOptions",
    "Replays",
    "ResolvedLimits",
    "RevokedGrant",
    "Route",
    "Sealer",
    "SourceSwitch",
    "Ticket",
    "ToolExecutor",
    "Typer",
    "UnknownCalls",
    "ValidationError",
    "ValidationErrorKind",
    "Validator",
    "choose_encoder",
    "compile_path",
    "in_own_thread",
    "in_slices",
    "meta",
    "timeout_at",
    "validator_for",
]
