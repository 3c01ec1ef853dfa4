"""What the providers of a host run with: the services of their calls, and those that they ask for by type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TypeVar

from toolplug.catalog.plan import Tool
from toolplug.errors import HostKeyError, StoreUnavailable
from toolplug.execution.accounting import CallAccounting, OnCall
from toolplug.execution.executor import CallerTools
from toolplug.execution.idempotency import Replays
from toolplug.execution.plans import CallServices
from toolplug.execution.resolved_limits import LimitLevel
from toolplug.execution.user_auth import ScopeOf
from toolplug.host.artifacts import SOURCE, Artifacts, read_result
from toolplug.host.file.configuration import Configuration, CurrentConfiguration
from toolplug.host.file.plugin_hooks import hooks_of_plugins
from toolplug.host.file.user_auth_entries import list_user_auth
from toolplug.host.keys import HostKey
from toolplug.host.opening.part_services import ToolsForParts
from toolplug.host.opening.records import HostRecords
from toolplug.host.running_parts import RunningParts
from toolplug.net.egress import Egress
from toolplug.part_protocols.approvals import PartApprovals
from toolplug.providers.planning import KIND
from toolplug.providers.plugins.registration import PluginManager
from toolplug.providers.registry import RegistryServices
from toolplug.providers.site import Sealing, Services, TemporaryRoot, stored_sites
from toolplug.signatures.values import canonical
from toolplug.stores.store import Store
from toolplug.toolsets.saved.equipped import Stays

MANAGING = "toolsets"
"""The provider type whose tools stay in every catalog, since they equip another toolset or none."""

S = TypeVar("S")


def always_listed(current: Callable[[], Configuration]) -> Stays:
    """Return which tools no equipped toolset leaves out: those that choose toolsets, and the reader of kept results."""

    def stays(tool: Tool) -> bool:
        ref = tool.definition.ref
        wanted = current().providers.wanted.get(ref.source) if ref.kind == KIND else None
        return ref.source == SOURCE or (wanted is not None and wanted.entry.type == MANAGING)

    return stays


def offer_services(own: Sequence[object], opened: Sequence[RunningParts]) -> Services:
    """Return the services that providers may ask for by type: `own`, and the parts once they are `opened`."""

    def service(kind: type[S], /) -> S:
        found = next((each for each in own if isinstance(each, kind)), None)
        if found is None:
            found = next((parts.find(kind) for parts in opened), None)
        if found is None:
            raise LookupError(f"this host does not offer {kind.__name__}")
        return found

    return service


def call_services(
    records: HostRecords,
    approvals: PartApprovals,
    artifacts: Artifacts,
    current: CurrentConfiguration,
    on_call: OnCall | None,
    tools: Callable[[], ToolsForParts],
    scope_of: ScopeOf,
) -> CallServices:
    """Return what every call of the host needs. `tools()` gives those of callers once the host is open."""

    def limits() -> LimitLevel:
        now = current()
        return LimitLevel((), now.settings.limits, partial(now.origin, "limits"))

    return CallServices(
        accounting=CallAccounting(on_call, records.cluster),
        replay=Replays(records.store, records.processes, scope_of),
        approvals=approvals,
        artifacts=artifacts,
        limits=limits,
        tools_of=lambda caller: CallerTools(
            tools().executor_for(caller.principal, caller.agent, caller.session), caller
        ),
        scope_of=scope_of,
    )


def scopes_by_key(key: HostKey) -> ScopeOf:
    """Return what makes scopes with the key of the host: `StoreUnavailable` without one, as nothing is kept then."""

    async def scope_of(credentials: Mapping[str, str]) -> str:
        if not credentials:
            return ""
        try:
            return await key.digest("replays", canonical(dict(credentials)))
        except HostKeyError as error:
            raise StoreUnavailable(str(error)) from None

    return scope_of


async def open_host_key(current: CurrentConfiguration, store: Store) -> HostKey:
    """Return the keys of the host. Raises `HostKeyError` and `StoreError`."""
    now = current()
    key = HostKey(lambda: current().settings.key, store, now.folder, now.store.state_folder, given=now.store.on_network)
    # What is kept of calls with a caller's credential is found by digests with the key.
    await key.begin(needed=bool(list_user_auth(now.providers, now.servers)))
    return key


def registry_services(
    current: CurrentConfiguration,
    store: Store,
    services: CallServices,
    artifacts: Artifacts,
    offered: Services,
    plugins: PluginManager,
    sealing: Sealing,
) -> RegistryServices:
    """Return what the registry of the host needs.

    Providers keep their files in the folder of `ConfiguredStore.state_folder`; with a store in memory, in a temporary
    folder as long as the host runs.
    """
    configuration = current()
    settings = configuration.settings
    plugins.specify(hooks_of_plugins(configuration.providers))
    folder = configuration.store.state_folder
    root = TemporaryRoot() if folder is None else folder.absolute
    return RegistryServices(
        calls=services,
        site_for=stored_sites(
            lambda: store,
            root,
            configuration.folder,
            offered,
            lambda: Egress(current().settings.egress.allow),
            sealing,
        ),
        namespace=settings.metrics.namespace,
        plugins=plugins,
        tail=cache(lambda: read_result(artifacts, services)),
        resources=(root,) if isinstance(root, TemporaryRoot) else (),
    )
