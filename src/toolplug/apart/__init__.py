"""Providers that run in a process of their own (docs/how-to/run-providers-apart.md), and single functions that do."""

from toolplug.exports import loader, make_lister

HOMES = {
    "ApartCallFailed": "toolplug.apart.calls",
    "Cgroup": "toolplug.apart.confinement.cgroups",
    "Cgroups": "toolplug.apart.confinement.cgroups",
    "Engine": "toolplug.apart.workers.provider",
    "FunctionProcess": "toolplug.apart.calls",
    "NoCgroups": "toolplug.apart.confinement.cgroups",
    "Serve": "toolplug.apart.workers.provider",
    "WorkerRefused": "toolplug.apart.workers.session",
    "WorkerSession": "toolplug.apart.workers.session",
    "call": "toolplug.apart.calls",
    "limit_memory": "toolplug.apart.confinement.cgroups",
    "open_cgroups": "toolplug.apart.confinement.cgroups",
    "remove_empty": "toolplug.apart.confinement.cgroups",
}
__getattr__ = loader("toolplug.apart", HOMES)
__dir__ = make_lister("toolplug.apart", HOMES)
