"""Providers that run in a process of their own (docs/how-to/run-providers-apart.md), and single functions that do."""

from toolplug.apart.calls import ApartCallFailed, FunctionProcess, call
from toolplug.apart.confinement.cgroups import Cgroup, Cgroups, NoCgroups, limit_memory, open_cgroups, remove_empty
from toolplug.apart.workers.provider import Engine, Serve
from toolplug.apart.workers.session import WorkerRefused, WorkerSession

__all__ = [
    "ApartCallFailed",
    "Cgroup",
    "Cgroups",
    "Engine",
    "FunctionProcess",
    "NoCgroups",
    "Serve",
    "WorkerRefused",
    "WorkerSession",
    "call",
    "limit_memory",
    "open_cgroups",
    "remove_empty",
]
