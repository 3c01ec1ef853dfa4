"""Testing tools for authors of providers and hosts."""

from toolplug.testing.broken_rule import BrokenRule, ContractBroken
from toolplug.testing.executor_laws import check_executor
from toolplug.testing.faulty import FaultyProvider
from toolplug.testing.http_recording import HttpRecording, RecordedRequest, UnrecordedRequest, recorded_http
from toolplug.testing.in_process import in_process_host
from toolplug.testing.provider_check import check_provider, made, running
from toolplug.testing.provider_rules.routes import RouteAnswer, TenantCaller
from toolplug.testing.store_fixtures import ManualClock
from toolplug.testing.store_laws import SharedStoreLaws, StoreLaws

__all__ = [
    "BrokenRule",
    "ContractBroken",
    "FaultyProvider",
    "HttpRecording",
    "ManualClock",
    "RecordedRequest",
    "RouteAnswer",
    "SharedStoreLaws",
    "StoreLaws",
    "TenantCaller",
    "UnrecordedRequest",
    "check_executor",
    "check_provider",
    "in_process_host",
    "made",
    "recorded_http",
    "running",
]
