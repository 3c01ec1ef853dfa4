"""What the parts of a host get of it: the tools of callers, and what to do when a session has ended."""

from __future__ import annotations

from collections.abc import Callable

from toolplug.catalog.call import Principal
from toolplug.catalog.definition import SEARCH_SOURCE
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.metrics import HostMetrics
from toolplug.execution.plans import CallServices
from toolplug.host.artifacts import SOURCE
from toolplug.host.file.configuration import CurrentConfiguration
from toolplug.host.opening.records import HostRecords
from toolplug.host.running_parts import RunningParts
from toolplug.host.toolsets.service import ToolsetService
from toolplug.host.views import Views
from toolplug.part_protocols.host_part import HostSessions, PartServices
from toolplug.providers.plugins.registration import PluginManager
from toolplug.providers.registry import FunctionRegistry
from toolplug.providers.site import Sealing
from toolplug.toolsets.saved.service import SavedToolsets


class ToolsForParts:
    """The `HostTools` of the parts: the names that are taken in a tenant's catalogs, and the tools of callers."""

    def __init__(
        self,
        registry: FunctionRegistry,
        toolsets: ToolsetService,
        views: Views,
        sessions: Callable[[], HostSessions],
    ) -> None:
        self._registry = registry
        self.toolsets = toolsets
        self._views = views
        self._sessions = sessions

    def owner_of(self, tenant: str, name: str) -> str | None:
        """Return the owner of a name in the tenant's catalogs, as text for messages; None for a free name."""
        catalog = self._registry.catalog.visible_to(Principal(tenant=tenant))
        tool = catalog.find(name)
        if tool is not None:
            source = tool.definition.ref.source
            return "this host itself" if source in (SOURCE, SEARCH_SOURCE) else f"provider {source!r}"
        prefix, dot, _ = name.partition(".")
        if dot and (prefix in self.toolsets.prefixes(tenant) or prefix in catalog.prefixes):
            return f"the toolset of the prefix {prefix!r}"
        return None

    def toolset(self, tenant: str, toolset: str) -> ToolExecutor:
        """Return one toolset under its prefix as a tenant sees it."""
        return self._views.toolset(tenant, toolset)

    def executor_for(self, principal: Principal, agent: str | None, session: str | None) -> ToolExecutor:
        """Return the tools of a principal, an agent of its or None, and a session or None. Raises `AccessError`."""
        known = None if session is None else self._sessions().known_session(session, principal.tenant)
        return self._views.executor_for(principal, agent, known)


def part_services(
    records: HostRecords,
    current: CurrentConfiguration,
    services: CallServices,
    metrics: HostMetrics,
    tools: ToolsForParts,
    session_over: Callable[[str], None],
    plugins: PluginManager,
    sealing: Sealing,
) -> PartServices:
    return PartServices(
        store=records.store,
        processes=records.processes,
        serving=records.serving,
        end_conversation=tools.toolsets.tools.end,
        calls=services,
        tools=tools,
        metrics=metrics.for_collectors(),
        namespace=current().settings.metrics.namespace,
        quotas=lambda: current().settings.quotas,
        origin=current.origin,
        session_begun=tools.toolsets.begin_session,
        session_over=session_over,
        plugins=plugins,
        configuration=current,
        sealing=sealing,
        offering_changed=services.offering_changed.listen,
    )


def end_session(
    views: Views, toolsets: ToolsetService, saved: SavedToolsets, running: Callable[[], RunningParts], code: str
) -> None:
    """Close and forget the views and toolsets of a session that has ended, and what parts know of it."""
    views.end(code)
    toolsets.tools.end(code)
    saved.end(code)
    running().session_over(code)
