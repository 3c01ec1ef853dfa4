"""The host: runs one configuration, and gives each caller an executor of its tools."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self, TypeVar

from toolplug.catalog.call import ANONYMOUS, Principal
from toolplug.catalog.definition import Offer, ToolDefinition
from toolplug.execution.accounting import OnCall
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.plans import ChangeSignal
from toolplug.host.admin.admin import HostAdmin, LastReload, running_values
from toolplug.host.admin.reload import Reloaded
from toolplug.host.entered import EnteredHost
from toolplug.host.file.configuration import Coded, Configuration, Source, read_configuration, seen_from
from toolplug.host.file.settings import Scope
from toolplug.host.file.values import ConfiguredValue
from toolplug.host.opening.coded import CodedParts, Serves
from toolplug.host.opening.parts import Parts
from toolplug.host.toolsets.service import McpRegistration, coded_mcp
from toolplug.packages.entry_points import Installed, find_installed
from toolplug.providers.entry import DesiredProvider, ProviderState
from toolplug.providers.plugins.registration import PluginManager, specifications
from toolplug.providers.plugins.shapes import ProviderLike, desired_providers
from toolplug.runtime.slips import check_event_loop, require_async_with, suggest_options
from toolplug.toolsets.registered import Toolsets
from toolplug.toolsets.toolset import Factory, coded_toolset

_LOG = logging.getLogger("toolplug.host")
# Other states are errors of a server.
_CALM = (ProviderState.ACTIVE, ProviderState.DISABLED, ProviderState.SHADOWED, ProviderState.WAITING)
_LEVELS = {**dict.fromkeys(_CALM, logging.INFO), ProviderState.INSTALLED_NOT_ENABLED: logging.DEBUG}
CODE = "host"  # the subject in audit lines of what the host's own code changes

P = TypeVar("P")

Reader = Callable[[Source, Mapping[str, str], Installed, Coded], Configuration]
"""Reads a source with an environment and the installed packages. Raises `ConfigError`."""

_LOCKED = "toolplug.locking.reader"
"""Compares packages with a lock; imported for hosts that have one."""


def reader_of(*, locked: bool) -> Reader:
    """Return what reads a configuration; `locked`: with the lock that is next to it."""
    return import_module(_LOCKED).read_locked if locked else read_configuration


@suggest_options
def open_host(
    config: Source = "providers.yaml",
    *,
    environ: Mapping[str, str] | None = None,
    serving: bool = True,
    sessions: bool = True,
    on_call: OnCall | None = None,
    providers: Mapping[str, ProviderLike] | Sequence[ProviderLike] = (),
    locked: bool = False,
) -> Host:
    """Return a host for a configuration file, or a mapping of the same shape, which is read when the host is entered.

    `environ` gives the values of `${NAME}`; None: the environment of the process on entering. `serving` False is for
    inspection next to the process that serves; `sessions` False leaves the sessions of the store, and their queued
    calls, to another process. `on_call` is called with provider, tool name, status and seconds of each answered call.

    `providers` are added to those of the file, after them and under the limits of the file, as `FunctionRegistry` takes
    them. `locked`: a package or a tool that is not as `toolplug.lock` has it, next to the file, is refused on entering.
    Raises `InvalidDefinition` for what is no provider.
    """
    given = desired_providers(providers)
    read = reader_of(locked=locked)
    return Host(config, environ, read, given, serving=serving, sessions=sessions, on_call=on_call)


class PartDown(NamedTuple):
    """A part of the host that is down, so that calls cannot be served. `reason` is for operators: it may name paths."""

    part: str
    reason: str


@require_async_with
class Host(EnteredHost):
    """Runs one configuration while it is entered; it can be entered again after it was left.

    `stopping` is sent by `stop`.

    Entering raises `ConfigError` with every problem at once, and `StoreError` if the store cannot be opened.

    ```python
    import asyncio

    from toolplug import Host, Principal, open_host, tool

    @tool
    def price(item: str) -> str:
        "Say what an item costs."
        return f"{item}: 3.50 EUR"

    async def main():
        host: Host = open_host({"store": "memory://"}, providers=[price])
        async with host:
            tools = host.executor_for(Principal("ada", scopes=frozenset({"tools:call"})))
            assert (await tools.call("price", item="tea")).output == "tea: 3.50 EUR"

    asyncio.run(main())
    ```
    """

    def __init__(
        self,
        config: Source,
        environ: Mapping[str, str] | None,
        read: Reader,
        providers: Iterable[DesiredProvider] = (),
        *,
        serving: bool = True,
        sessions: bool = True,
        on_call: OnCall | None = None,
    ) -> None:
        super().__init__()
        self._source = config
        self._environ = environ
        self._reader = read
        self._entered_in = Path()
        self._providers = {item.entry.key: item for item in providers}
        self._serves = Serves(servers=serving, sessions=serving and sessions, on_call=on_call)
        self._plugins = PluginManager()
        self._down: tuple[PartDown, ...] = ()
        self._admin = HostAdmin(self._require_entered, self._read, _say_wrong_servers, self.source_name)
        self.stopping: ChangeSignal = ChangeSignal()
        self._coded = Toolsets()
        self._coded_mcp: Mapping[str, McpRegistration] = MappingProxyType({})

    async def __aenter__(self) -> Self:
        check_event_loop()
        if self._open is not None:
            raise RuntimeError("this host is entered already; open another one for the same file with open_host")
        self._entered_in = Path() if isinstance(self._source, Mapping) else Path.cwd()
        coded = CodedParts(self._coded, self._coded_mcp, self._plugins)
        self._open = opened = await Parts.open(self._read(), coded, serves=self._serves)
        try:
            await self._admin.begin()
        except BaseException:
            # A host whose last step failed must be free to be entered again.
            self._open = None
            await opened.life.aclose()
            raise
        self._say_what_runs()
        return self

    async def __aexit__(self, *_: object) -> None:
        # A reload that runs ends first: what it still opens would be closed by nobody.
        async with self._admin.changing:
            opened = self._require_entered()
            try:
                await opened.drain()
            finally:
                self._open = None
                await opened.life.aclose()

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """Run the host as the lifespan of a Starlette or FastAPI application: `FastAPI(lifespan=host.lifespan)`."""
        async with self:
            yield

    @property
    def source_name(self) -> str:
        """The path of the configuration, `settings` for a mapping."""
        return "settings" if isinstance(self._source, Mapping) else os.fspath(self._source)

    @property
    def plugins(self) -> PluginManager:
        """The plugin manager, also before the host is entered: each running provider is registered under its key."""
        return self._plugins

    @property
    def admin(self) -> HostAdmin:
        """What concerns the other processes of the host's store: reloading them, and what each runs."""
        return self._admin

    def register_toolset(
        self,
        id: str,  # noqa: A002  the contract's own name
        prefix: str,
        source: ToolExecutor | Factory,
        tools: Iterable[ToolDefinition] | None = None,
        *,
        offer: Offer | None = None,
    ) -> None:
        """Register a toolset in place of any other of its id; it stays registered when the host is left.

        `source` is an executor that all callers share and the host never closes, or a factory that runs once for each
        session, without one for each call, and whose executor is closed with it. `tools` are those of a factory's
        executor, listed before it runs; without them the first call or listing runs it. `offer` is how models are
        offered the tools whose own rules say nothing of it, None: as their source says. Toolsets that the agents of the
        configuration name must be registered before the host is entered. Raises `InvalidDefinition` for an invalid id
        or prefix, and `ApiError` for a prefix that another toolset has.
        """
        toolset = coded_toolset(id, prefix, source, tools, offer)
        # In this order, as each step may refuse: what the running host refuses is not registered for the next entering
        # either.
        coded = self._coded.with_coded(toolset)
        if self._open is not None:
            self._open.toolsets.register(toolset)
        self._coded = coded
        self._coded_mcp = MappingProxyType({key: item for key, item in self._coded_mcp.items() if key != id})

    def register_mcp_toolset(
        self,
        id: str,  # noqa: A002  the contract's own name
        prefix: str,
        server: str | Mapping[str, object],
        allow_for: Iterable[str] = (),
        *,
        scope: Scope = "shared",
        offer: Offer | None = None,
    ) -> None:
        """Register the tools of an MCP server as a toolset, as `register_toolset` does.

        `server` is the id of an entry of `mcp_servers`, or a mapping like such an entry. `allow_for` are agents that
        may use the toolset in addition to those of the configuration. With the `scope` session, each session has its
        own connection. Listing shows the discovered tools, and starts nothing. Raises `InvalidDefinition`, `ApiError`,
        and `ConfigError` for an invalid mapping.
        """
        environ = os.environ if self._environ is None else self._environ
        item = coded_mcp(id, prefix, server, allow_for, scope, offer, environ)
        coded = self._coded.with_coded(item.placeholder)
        if self._open is not None:
            self._open.register_mcp(item)
        self._coded = coded
        self._coded_mcp = MappingProxyType({**self._coded_mcp, id: item})

    async def allow(self, agent: str, toolsets: Iterable[str], *, tenant: str = "default") -> None:
        """Allow an agent of this tenant exactly these toolsets, by their ids in order, from the next call on.

        It is stored like a `PUT` over HTTP, and takes precedence over the file. Raises `TypeError` for a text in place
        of a list, `ApiError` for an id that the tenant does not have, and `StoreError`.
        """
        if isinstance(toolsets, str):
            raise TypeError(f"toolsets is a list of ids, not a text: host.allow({agent!r}, [{toolsets!r}])")
        await self._require_entered().toolsets.allow(agent, tuple(toolsets), by=Principal(CODE, tenant), request_id="")

    def configured_values(self, principal: Principal) -> tuple[ConfiguredValue, ...]:
        """Return every value of the running configuration with its origin, as it applies to this principal's tenant.

        Secrets are masked, and what comes from the environment is as it is written. Without the scope `operator` the
        keys of other tenants, and their names in rules, are left out.
        """
        return tuple(running_values(self._require_entered(), self._admin.overrides, principal))

    @property
    def last_reload(self) -> LastReload | None:
        """The last reload since the host was entered, also one that was refused."""
        return self._admin.last_reload

    def stop(self) -> None:
        """End every event stream; calls go on until the host is left."""
        self.stopping.send()
        self.registry.stop()
        self._require_entered().running.stop()

    async def ready(self) -> tuple[PartDown, ...]:
        """Return the parts that are down, none if calls can be served; each change is logged once.

        All that ask while the store is being asked share its answer.
        """
        if self._open is None:
            return (PartDown("host", "it has not been started"),)
        opened = self._open  # the host may be left while the store is being asked
        error = await opened.operations.store_error()
        down = () if error is None else (PartDown("store", str(error)),)
        down += tuple(PartDown(*each) for each in await opened.running.down())
        # The whole tuples are compared: another reason for the same part is news too.
        for part in down if down != self._down else ():
            _LOG.error("not ready: %s: %s", part.part, part.reason)
        self._down = down
        return down

    async def enable(self, key: str, *, by: Principal, request_id: str = "") -> None:
        """Run the provider of this key until the next start or reload, in every process of a shared store.

        Raises `NoSuchProvider` and `ConfigError`, and `StoreError` if another process may not have applied it.
        """
        await self._admin.switch(key, True, by=by, request_id=request_id)

    async def disable(self, key: str, *, by: Principal, request_id: str = "") -> None:
        """Stop the provider of this key after its running calls, until a start or reload, in every process.

        Raises like `enable`.
        """
        await self._admin.switch(key, False, by=by, request_id=request_id)

    async def reload(self, *, by: Principal, request_id: str = "") -> Reloaded:
        """Read the configuration again and apply it: unchanged providers keep running, the others are replaced.

        Raises `ConfigError` with every problem; then nothing has changed. Also raises `StoreError`, if the providers
        that were switched on or off cannot be as in the file again in the other processes of a shared store.
        """
        return await self._admin.reload(by=by, request_id=request_id)

    def _read(self) -> Configuration:
        environ = os.environ if self._environ is None else self._environ
        prefixes = {name: toolset.prefix for name, toolset in self._coded.coded.items()}
        agents = frozenset(agent for item in self._coded_mcp.values() for agent in item.agents)
        source, hooks = seen_from(self._entered_in, self._source), specifications(self._plugins)
        return self._reader(source, environ, find_installed(), Coded(prefixes, self._providers, agents, hooks))

    def _say_what_runs(self) -> None:
        _say_wrong_servers(self._require_entered().configuration)
        failed = logging.ERROR if self._serves.servers else logging.INFO  # other commands print the states
        for record in self.records():
            shown = (record.key, record.type, record.state, f" ({record.reason})" if record.reason else "")
            _LOG.log(_LEVELS.get(record.state, failed), "provider %s (%s): %s%s", *shown)
        for view in self.servers.servers(ANONYMOUS.tenant):
            _LOG.info("MCP server %s: %s", view.id, view.summary)


def _say_wrong_servers(configuration: Configuration) -> None:
    for problem in configuration.servers.problems:
        _LOG.error("%s; going on without it", problem)
