"""`metrics.md`: the metric families of a host, from a scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import get_args

from docs.generator.markdown import code, page, sentence, table
from prometheus_client.metrics_core import Metric

from toolplug.catalog.call import ToolStatus
from toolplug.crashes import CodeOwner
from toolplug.execution.accounting import BUCKETS, DEFAULT_NAMESPACE, CallAccounting
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.metrics import CallMetrics
from toolplug.execution.plans import CallServices
from toolplug.host.file.tool_servers import Status
from toolplug.host.operations import FAST_BUCKETS, MeasuredStore, Operations
from toolplug.part_protocols.approvals import NO_APPROVALS
from toolplug.parts.mcp.client.server_config import ADDED
from toolplug.parts.mcp.discovery.record import NEVER
from toolplug.parts.mcp.running import ServerMetrics
from toolplug.parts.responses.items.tool_list import PrefixChanges
from toolplug.parts.sessions.limits import SessionLimits
from toolplug.parts.sessions.service import SessionMetrics, Sessions
from toolplug.parts.sessions.tools.session_tool import PluginStatus, SessionPlanner, StreamRole
from toolplug.providers.collectors import Collected, ProviderCollectors
from toolplug.stores.memory import MemoryStore

_HEAD = f"""
`GET /metrics` returns these metrics and those of the providers. The prefix of the names, `{DEFAULT_NAMESPACE}`, is
`metrics.namespace` of the configuration.
"""

_LABELS = f"""
`provider` is the key of the entry, `_unknown` for a tool that does not exist, `_session` for the tools of
applications, whose `tool_name` is always `_session`. `status` of a call is one
of {", ".join(code(status) for status in ToolStatus)}; of a request it is the HTTP status. `path` is the path as its
provider declares it, and `method` is `_other` if the path does not support the method. Histograms have the buckets
{", ".join(f"{bound:g}" for bound in BUCKETS)} s, those of the host's own routes and of the store
{", ".join(f"{bound:g}" for bound in FAST_BUCKETS)} s.

`gate` is what limited a call: the limit `rate`, `max_concurrency` or `breaker`, `abandoned` for calls that run on after
their deadline, `approvals` where too many calls wait for a decision, `idempotency_key` for a key whose first call still
runs. `quota` is the name of a [quota](configuration.md). `provider` of an open breaker is `toolset:` and the id for the
breaker of a toolset, `_all` for that of all tools. An event stream is timed until it begins. Conflicts of two writers
are no errors of the store, and waiting for events is no operation.

Of sessions, `plugin` is one of {", ".join(map(code, get_args(PluginStatus)))}, `role` one of
{", ".join(map(code, get_args(StreamRole)))}, `kind` is `register` or `update`, and its `outcome` is `done` or the code
of the [error](errors.md). The `outcome` of a request to a plugin is `answered`, `error`, or the reason why there
is no answer.

Calls of an MCP server's tools have `mcp:` and its id as their `provider`. Of servers, `status` is one of
{", ".join(map(code, get_args(Status)))}; `server` is the id in the file, or `{ADDED}` for every server that was added
over HTTP, and `outcome` is `success` or `failed`. The `reason` of a new list is `too_many_changes`, `request` or
`search` ([Lists that stay](../how-to/lists-that-stay.md)).

With several [workers](../how-to/deploy.md#workers), counters and histograms are those of all together, and other
metrics have the label `worker`, its number. `{DEFAULT_NAMESPACE}_worker_up` is 1 for a worker that answered this
scrape, else 0.
"""


def metrics_page() -> str:
    """The page."""
    rows = [
        (code(_exposed(family)), family.type, ", ".join(map(code, _labels(family))), sentence(family.documentation))
        for family in _families()
    ]
    return page("Metrics", _HEAD, table(("name", "type", "labels", "description"), rows), _LABELS)


def _families() -> Iterable[Metric]:
    """Every family, each with a sample."""
    accounting = CallAccounting()
    accounting.counters("p", "t").ended["success"] = 1
    accounting.route("p", "GET", "/").record("200", 0.0)
    accounting.refusals["authentication_required"] += 1
    accounting.quotas["streams"] += 1
    accounting.watch("ops", "query", "policy: deny")
    accounting.abandoned_limit("native", "p")
    accounting.counters("p", "t").limited_by("rate")
    broken = ProviderCollectors(lambda: [Collected(CodeOwner("p"), False, [_Broken()])], DEFAULT_NAMESPACE)
    return [
        *CallMetrics(accounting).collect(),
        *broken.collect(),
        *_host_families(accounting),
        *_session_families(),
        *_server_families(),
        *_prefix_changes().collect(),
    ]


def _host_families(accounting: CallAccounting) -> Iterable[Metric]:
    store = MeasuredStore(MemoryStore())
    operations = Operations(store, accounting, NO_APPROVALS.count_waiting, DEFAULT_NAMESPACE)
    operations.request("GET", "/", 200, 0.0)
    asyncio.run(_refreshed(operations, store))
    return operations.collect()


async def _refreshed(operations: Operations, store: MeasuredStore) -> None:
    async with store:
        await operations.refresh()


def _prefix_changes() -> PrefixChanges:
    changes = PrefixChanges(DEFAULT_NAMESPACE)
    changes.counts["request"] = 1
    return changes


def _session_families() -> Iterable[Metric]:
    sessions = Sessions(MemoryStore(), SessionPlanner(CallServices()), _Alone(), limits=SessionLimits())
    counters = sessions.counters
    counters.changes["register", "done"] = 1
    for counted in (counters.ended, counters.events, counters.resyncs, counters.relayed.ended):
        counted["any"] = 1
    return SessionMetrics(sessions, DEFAULT_NAMESPACE).collect()


def _server_families() -> Iterable[Metric]:
    return ServerMetrics(lambda: [NEVER], lambda: {("s", "success"): 1}, DEFAULT_NAMESPACE).collect()


class _Alone:
    """A host with sessions only."""

    def owner_of(self, tenant: str, name: str) -> str | None:
        """No name is taken."""
        return None

    def default_tools(self, tenant: str) -> ToolExecutor | None:
        """There are no tools."""
        return None


class _Broken:
    def collect(self) -> Iterable[Metric]:
        """Fail, so that the failure is counted."""
        raise ValueError("a reference needs one sample of every family")


def _exposed(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> list[str]:
    return [label for label in family.samples[0].labels if label != "le"]
