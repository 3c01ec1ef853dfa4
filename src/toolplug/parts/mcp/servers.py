"""The MCP servers of a running host: of the file, of the host's code, and added over HTTP.

A listing reaches callers in these steps: `Discovery` lists the server with `ServerTools.listing` and stores the record,
`McpServers` passes it to `ServerTools.show`, which publishes the catalog, and toolsets follow that through `source`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Self

from toolplug.catalog.call import OPERATOR, Principal
from toolplug.cluster.followed import FollowedRecords
from toolplug.errors import ApiError, StoreError
from toolplug.execution.accounting import audit_block
from toolplug.host.file.tool_servers import ServerServices
from toolplug.host.host import Host
from toolplug.host.quotas.settings import quota_exceeded
from toolplug.host.store_records import TenantRecords, hash_key
from toolplug.parts.mcp.client.connection import Connections
from toolplug.parts.mcp.client.connection_strategies import BackgroundCloses
from toolplug.parts.mcp.client.server_config import ADDED, Server, config_hash
from toolplug.parts.mcp.client.server_tools import ServerTools
from toolplug.parts.mcp.discovery.record import DiscoveryRecord, KnownServer, ServerName, hold_back
from toolplug.parts.mcp.discovery.service import Discovery
from toolplug.parts.mcp.limits import MOST_ADDED, SERVERS, TOGETHER_S
from toolplug.parts.mcp.running import HostServers, ServerHandle
from toolplug.parts.mcp.server_records import (
    ServerRecord,
    ServerView,
    added_server,
    changed_record,
    check_address,
    check_id,
    egress_of,
    entries_of,
    not_found,
    server_view,
)

_LOG = logging.getLogger("toolplug.host")


async def servers_of(host: Host) -> McpServers:
    """Return the MCP servers of an entered host, loaded if there was none before. Raises `StoreError`."""
    servers = host.servers
    assert isinstance(servers, HostServers), "the host's servers are those of this part"
    return await servers.load()


class McpServers:
    """The MCP servers of one host: their configuration, their executors, and their discovery.

    A server is started by its discovery, or by a call of one of its tools; unless `serving`, only requested discoveries
    run. A server added over HTTP belongs to the caller's tenant; a change of a server of the file, which can set
    `enabled` and `tools`, holds for every tenant, as its discovery does, so both need the scope `operator`. While
    entered it follows the records that other processes change; a change is effective in every process of the store when
    the method returns.
    """

    def __init__(
        self,
        services: ServerServices,
        coded: Mapping[str, Server],
        handle: Callable[[ServerName], ServerHandle],
    ) -> None:
        """`coded` are the servers of the host's code by id; `handle` returns what toolsets have of a server."""
        self._services = services
        self._configuration = services.configuration
        self._store = services.store
        self._discovery = Discovery(self._store)
        self._coded = coded
        self._handle = handle
        self._serving = services.serving
        configured = lambda: (egress_of(self._configuration()), self._configuration().folder)  # noqa: E731  later
        self._connect = Connections(configured, services.extensions).connect
        self._hash_key = b""
        self._servers: dict[ServerName, ServerTools] = {}
        self._handles: dict[ServerName, ServerHandle] = {}
        self._last_counted: dict[ServerName, str | None] = {}
        self._limits: object = None
        self._closes = BackgroundCloses()
        self._records = TenantRecords(self._store, SERVERS, ServerRecord)
        self._kept: dict[ServerName, ServerRecord] = {}
        self._changing = asyncio.Lock()
        self._followed = FollowedRecords(self._store, SERVERS, self._records.load, self._use, lambda _: self._changing)
        self._requests = services.requests
        self.discoveries: Counter[tuple[str, str]] = Counter()
        self._life = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as life:
            self._hash_key = await hash_key(self._store)
            await life.enter_async_context(self._discovery)
            life.push_async_callback(self._end_all)
            self._discovery.watch(self._show)
            await self._followed.start()  # begins servers even if it fails after that
            life.push_async_callback(self._followed.aclose)
            self.apply()
            self._requests.apply(self._followed)
            self._requests.apply(self._discovery.records)
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._life.aclose()

    def servers(self, tenant: str) -> tuple[ServerView, ...]:
        """Return the servers of a tenant: those of the file in its order, then added ones."""
        return tuple([self._view(server) for server in self._of(tenant).values()])

    def server(self, tenant: str, name: str) -> ServerView:
        """Return one server of a tenant. Raises `ApiError` for an unknown one."""
        return self._view(self._found(tenant, name))

    def ids(self, tenant: str | None) -> Collection[str]:
        """Return the ids that toolsets may name: of a tenant, or None for those of the file and of the host's code.

        Servers of the file with invalid entries are included.
        """
        return {*entries_of(self._configuration()).ids, *self._of(tenant)}

    def records(self) -> Iterator[DiscoveryRecord]:
        """Return the discovery record of every server, of all tenants."""
        return (self._record(tools.server) for tools in self._servers.values())

    def record(self, tenant: str, server: str) -> DiscoveryRecord:
        name = self.name_of(tenant, server)
        return self._record(self._servers[name].server) if name in self._servers else self._discovery.record(name)

    def tools(self, tenant: str) -> Mapping[str, ServerTools]:
        """Return the tools of each server of a tenant, by server id."""
        return {name: self._servers[server.name] for name, server in self._of(tenant).items()}

    def refresh_server(self, tenant: str | None, server: str) -> None:
        """List the server's tools again in the background, since a session begins to use them."""
        self._discovery.due(self.name_of(tenant, server))

    async def add(self, record: ServerRecord, *, by: Principal, request_id: str) -> ServerView:
        """Add a server with a `url` for the caller's tenant, and begin its discovery.

        Raises `ApiError` and `StoreError`; then nothing has changed, unless the error says that another process does
        not apply the change.
        """
        async with self._changing:
            with self._audit("add", record.id, by, request_id):
                check_id(record.id)
                self._check_address(record)
                self._check_room(record.id, by)
                record = record.model_copy(update={"tenant": by.tenant, "by": by.subject})
                written = await self._records.save(record, *record.name)
                self._followed.put(*written, record)
            view = self.server(by.tenant, record.id)
        await self._requests.wait_until_applied(written.key)
        return view

    async def change(self, change: ServerRecord, *, by: Principal, request_id: str) -> ServerView:
        """Change what the record sets of a server; a new address is discovered again. Raises like `add`.

        Of a server of the file, only `enabled` and `tools` can be changed.
        """
        server = change.id
        async with self._changing:
            with self._audit("change", server, by, request_id):
                found = self._found(by.tenant, server)
                if found.name.tenant is None and not change.is_for_file:
                    raise _in_file(found, "only enabled and tools can be changed here")
                _check_scope(found, by)
                before = self._followed.get(self._records.key(*found.name)) or ServerRecord(id=server)
                record = changed_record(before, change.model_copy(update={"by": by.subject}))
                if change.url is not None or change.headers is not None:
                    self._check_address(record)
                written = await self._records.save(record, *record.name)
                self._followed.put(*written, record)
            view = self.server(by.tenant, server)
        await self._requests.wait_until_applied(written.key)
        return view

    async def remove(self, server: str, *, by: Principal, request_id: str) -> None:
        """Remove an added server and its discovery record. Raises like `add`."""
        async with self._changing:
            with self._audit("remove", server, by, request_id):
                found = self._found(by.tenant, server)
                if found.name.tenant is None:
                    raise _in_file(found, "remove it there")
                written = await self._records.delete(*found.name)
            self._followed.put(*written, None)  # the audit line names a server that is still known
            try:
                await self._discovery.forget(found.name)
            except StoreError as error:
                _LOG.warning("what is known of the removed MCP server %r stays in the store: %s", server, error)
        await self._requests.wait_until_applied(written.key)

    async def discover(self, server: str, *, by: Principal, wait_s: float, request_id: str) -> ServerView:
        """List the server's tools now, waiting at most `wait_s` seconds; a failure is in the view's record.

        Raises `ApiError` and `StoreError`.
        """
        with self._audit("discover", server, by, request_id):
            found = self._found(by.tenant, server)
            _check_scope(found, by)
            if not found.enabled:
                raise ApiError("server_disabled", f"MCP server {server!r} is not enabled", param="id")
            self._know(self._servers[found.name])
            record = await self._discovery.wait_for_listing(found.name, wait_s)
        if record.status != "discovering":
            await self._requests.wait_until_applied(self._discovery.key(found.name))
        return self.server(by.tenant, server)

    async def accept(self, server: str, tools: Collection[str] | None, *, by: Principal, request_id: str) -> ServerView:
        """Accept the changed definitions of these tools, None: of all that are quarantined. Raises like `discover`."""
        with self._audit("accept", server, by, request_id):
            found = self._found(by.tenant, server)
            _check_scope(found, by)
            waiting = {tool.name for tool in self._discovery.record(found.name).tools if tool.quarantined}
            for tool in tools or ():
                if tool not in waiting:
                    message = f"no tool {tool!r} of MCP server {server!r} waits to be accepted"
                    raise ApiError("tool_not_quarantined", message, param="tools")
            await self._discovery.accept(found.name, tools)
        await self._requests.wait_until_applied(self._discovery.key(found.name))
        return self.server(by.tenant, server)

    def name_of(self, tenant: str | None, server: str) -> ServerName:
        """Return the server that a tenant means by an id."""
        own = ServerName(server, tenant)
        return own if own in self._kept else ServerName(server)

    def _of(self, tenant: str | None) -> dict[str, Server]:
        """Return the servers of a tenant by id; its own take precedence over shared ones."""
        mine = {name.id: self._servers[name].server for name in self._kept if name.tenant == tenant and tenant}
        # A reload replaces the configuration some time before `apply` begins its new servers.
        begun = [name for name in self._list_shared() if ServerName(name) in self._servers]
        shared = {name: self._servers[ServerName(name)].server for name in begun}
        return {**shared, **mine}

    def _list_shared(self) -> Mapping[str, Server]:
        """Return the servers of every tenant, as configured: of the file, then of the host's code."""
        return {**entries_of(self._configuration()).servers, **self._coded}

    def _found(self, tenant: str, name: str) -> Server:
        known = self._of(tenant)
        if name not in known:
            raise not_found(name, known)
        return known[name]

    def _view(self, server: Server) -> ServerView:
        withheld = frozenset[str]()
        if server.name.tenant is None:
            withheld = entries_of(self._configuration()).withheld.get(server.name.id, withheld)
        return server_view(self._servers[server.name], self._record(server), withheld)

    def _record(self, server: Server) -> DiscoveryRecord:
        return hold_back(self._discovery.record(server.name), server.locked)

    def _check_address(self, record: ServerRecord) -> None:
        check_address(record.url or "", record.headers or {}, egress_of(self._configuration()))

    def _check_room(self, name: str, by: Principal) -> None:
        if name in self.ids(by.tenant):
            raise ApiError("server_exists", f"there is an MCP server {name!r} already", param="id")
        added = [record for record in self._kept.values() if record.tenant == by.tenant]
        if len(added) >= MOST_ADDED:
            raise ApiError("too_many_servers", f"a tenant may add {MOST_ADDED} MCP servers")
        for owner, limit in self._configuration().settings.quotas.levels("servers", by.tenant, by.subject):
            if sum(len(owner) == 1 or record.by == by.subject for record in added) >= limit:
                raise quota_exceeded("servers", owner, limit)

    def _list_wanted(self) -> Iterable[Server]:
        """Yield every server as it should run now: the shared ones with their changes, and the added ones."""
        for server in self._list_shared().values():
            yield _with_change(server, self._kept.get(server.name))
        for record in self._kept.values():
            if record.tenant is not None:
                yield added_server(record)

    def apply(self) -> None:
        """Run the servers that the configuration, the host's code and the records want, under the present limits.

        Unchanged ones keep running, and unwanted ones end.
        """
        wanted = {server.name: server for server in self._list_wanted()}
        limits = self._services.calls.limits().limits
        limits_changed, self._limits = limits != self._limits, limits
        for name in [name for name in self._servers if name not in wanted]:
            self._end(name)
        for name, server in wanted.items():
            tools = self._servers.get(name)
            if tools is None:
                self._begin(server)
            elif limits_changed or _comparison_key(tools.server) != _comparison_key(server):
                tools.configure(server)
                if self._serving:
                    self._know(tools)

    def _begin(self, server: Server) -> None:
        name = server.name
        tools = self._servers[name] = ServerTools(
            server,
            self._services.calls,
            self._connect,
            on_change=partial(self._discovery.due, name),
            first=partial(self._keep_listing, name),
        )
        known = self._discovery.record(name)
        self._last_counted[name] = known.last_discovery
        tools.show(known)
        self._handles[name] = self._handle(name)
        self._handles[name].use(tools)
        if self._serving:
            self._know(tools)
            if known.status == "success":
                self._discovery.due(name, unless_listed_s=TOGETHER_S if self._requests.others else 0.0)

    def _know(self, tools: ServerTools) -> None:
        """Discover the server as it is configured now; a disabled one no longer."""
        server = tools.server
        if server.enabled:
            self._discovery.know(
                KnownServer(
                    name=server.name,
                    config_hash=config_hash(server, self._hash_key),
                    listing=tools.listing,
                    timeout_s=server.discovery_timeout_s,
                    pin=server.pin,
                    rediscover_s=server.rediscover_s,
                    announces=tools.announces,
                    offers=tools.last_offers,
                )
            )
        else:
            self._closes.begin(self._discovery.leave(server.name))

    def _end(self, name: ServerName) -> None:
        tools = self._servers.pop(name)
        self._last_counted.pop(name, None)
        self._closes.begin(self._discovery.leave(name))
        self._handles.pop(name).use(None)
        self._closes.begin(tools.aclose())

    async def _end_all(self) -> None:
        for name in list(self._servers):
            self._end(name)
        await self._closes.wait()

    def _show(self, name: ServerName, record: DiscoveryRecord) -> None:
        tools = self._servers.get(name)
        if tools is None:
            return
        if record.status in ("success", "failed") and record.last_discovery != self._last_counted.get(name):
            self._last_counted[name] = record.last_discovery
            self.discoveries[name.id if name.tenant is None else ADDED, record.status] += 1
        tools.show(record)

    def _keep_listing(self, name: ServerName, listed: Sequence[object]) -> None:
        """Use what a session's new connection lists as a discovery, which saves another start of the server.

        Discovery compares the hash, and drops the list if the configuration has changed.
        """
        tools = self._servers.get(name)
        if tools is not None:
            self._closes.begin(self._discovery.keep(name, config_hash(tools.server, self._hash_key), listed))

    def _use(self, changed: Mapping[str, ServerRecord | None]) -> None:
        for record in changed.values():
            if record is not None:
                self._kept[record.name] = record
        gone = {key for key, record in changed.items() if record is None}
        for name in [name for name in self._kept if gone and self._records.key(*name) in gone]:
            del self._kept[name]
        self.apply()

    def _audit(self, what: str, server: str, by: Principal, request_id: str) -> AbstractContextManager[None]:
        """Audit the block; an id that no server has is not repeated."""
        event = f"mcp_server.{what}"
        return audit_block(event, by, request_id, lambda: server if server in self.ids(by.tenant) else "_unknown")


def _with_change(server: Server, record: ServerRecord | None) -> Server:
    """Return a shared server with its changes over HTTP; changed rules replace all those of the configuration."""
    if record is None:
        return server
    shown = f"PATCH /api/mcp-servers/{record.id} by {record.by}"
    changed = {key for key in ("enabled", "tools") if getattr(record, key) is not None}

    def origin(*path: str) -> str:
        return shown if path and path[0] in changed else server.origin(*path)

    return replace(
        server,
        enabled=server.enabled if record.enabled is None else record.enabled,
        tools=server.tools if record.tools is None else record.tools,
        origin=origin,
    )


def _check_scope(server: Server, by: Principal) -> None:
    """Raise `ApiError` if the server is not that of the principal's tenant alone, and the principal no operator."""
    if server.name.tenant is None and not by.has_scope(OPERATOR):
        message = f"MCP server {server.name.id!r} is that of every tenant, which needs the scope {OPERATOR!r}"
        raise ApiError("insufficient_scope", message, param=OPERATOR)


def _in_file(server: Server, fix: str) -> ApiError:
    message = f"MCP server {server.name.id!r} is defined in the file ({server.origin()}); {fix}"
    return ApiError("in_file", message, param="id")


_SETTINGS = attrgetter(
    "transport", "enabled", "discovery_timeout_s", "rediscover_s", "pin", "locked", "policy", "offer", "tools", "limits"
)


def _comparison_key(server: Server) -> tuple[object, ...]:
    return (_SETTINGS(server), server.origin())
