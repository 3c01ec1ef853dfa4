"""The MCP servers of a running host: of the file, of the host's code, and added over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Literal, NamedTuple, Self
from urllib.parse import urlsplit, urlunsplit

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.text import counted
from toolplug.config.masking import MASK, holds_credentials, masked, named_arguments
from toolplug.config.quotas import quota_exceeded
from toolplug.discovery.record import DiscoveryRecord, ServerName
from toolplug.errors import ApiError
from toolplug.execution.accounting import audit
from toolplug.execution.egress import Egress
from toolplug.execution.plans import Policy
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.settings import Scope
from toolplug.host.servers.records import (
    CHANGES,
    NewServer,
    ServerChange,
    ServerRecord,
    ServerRecords,
    added_server,
    changed_record,
    check_address,
    check_id,
    key_of,
    new_record,
    not_found,
)
from toolplug.host.servers.running import RunningServers
from toolplug.mcp.server_config import Command, Server, Transport
from toolplug.mcp.server_tools import ServerTools
from toolplug.stores.change_log import ChangeLog, Following
from toolplug.stores.store import Store
from toolplug.toolsets.toolset import Source

ServerSource = Literal["file", "api"]


class ServerView(NamedTuple):
    """One server and what is known of it. `transport` is how it is reached; what could be a secret is `***`.

    `tools` are the policies that rules give, by the server's own names, `unmatched` the names of rules that the server
    has no tool for. `origin` is the line, or the request, that
    configured it.
    """

    id: str
    source: ServerSource
    enabled: bool
    policy: Policy
    pin: bool
    transport: Mapping[str, object]
    tools: Mapping[str, Policy]
    unmatched: tuple[str, ...]
    origin: str
    record: DiscoveryRecord

    @property
    def state(self) -> str:
        """Where it stands, in a few words for the log."""
        if not self.enabled:
            return "off"
        record = self.record
        known = f"{record.status}, {counted(len(record.tools), 'stale tool' if record.stale else 'tool')}"
        return known if record.error is None else f"{known} ({record.error})"


def server_view(tools: ServerTools, record: DiscoveryRecord, withheld: frozenset[str]) -> ServerView:
    """What may be shown of a server; `withheld` are texts that came from the environment or from secret files."""
    server = tools.server
    return ServerView(
        id=server.name.id,
        source="file" if server.name.tenant is None else "api",
        enabled=server.enabled,
        policy=server.policy,
        pin=server.pin,
        transport=_shown(server.transport, withheld),
        tools={name: rule.policy for name, rule in server.tools.items() if rule.policy is not None},
        unmatched=tools.unmatched_rules,
        origin=server.origin(),
        record=record,
    )


def _shown(transport: Transport, withheld: frozenset[str]) -> Mapping[str, object]:
    if isinstance(transport, Command):
        args = [masked(arg, withheld) for arg in _without_secrets(transport.args)]
        shown: dict[str, object] = {"command": transport.command, "args": args}
        if transport.env:
            shown["env"] = dict.fromkeys(transport.env, MASK)
        return shown
    shown = {"url": masked(_without_credentials(transport.url), withheld)}
    if transport.headers:
        shown["headers"] = dict.fromkeys(transport.headers, MASK)
    if transport.oauth is not None:
        shown["oauth"] = {"client_id": transport.oauth.client_id, "client_secret": MASK}
    return shown


def _without_secrets(args: Sequence[str]) -> Iterator[str]:
    """Arguments without what is called like a secret, and without addresses' passwords."""
    for argument in named_arguments(args):
        if argument.secret:
            yield f"{argument.before}{MASK}"
        else:
            value = argument.value
            yield f"{argument.before}{_without_credentials(value) if '://' in value else value}"


def _without_credentials(url: str) -> str:
    """An address without user, password and the values of its query."""
    if not holds_credentials(url) and "?" not in url:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host[2]}" if host[1] else parts.netloc
    return urlunsplit(parts._replace(netloc=netloc, query=MASK if parts.query else ""))


MOST_ADDED = 100
"""Servers that one tenant may add."""

_LOG = logging.getLogger("toolplug.host")


class McpServers:
    """Changes the servers of one host. What comes over HTTP is a record first, and holds for the caller's tenant.

    What is changed of a server of the file (its tools' rules, and whether it is on) holds for everybody who has it.
    While it is entered it follows the records that other processes change, within a quarter of a second.
    """

    def __init__(
        self, configuration: Configuration, store: Store, running: RunningServers, coded: Mapping[str, Server]
    ) -> None:
        self._configuration = configuration
        self._records = ServerRecords(store)
        self._running = running
        self._coded = dict(coded)
        self._kept: dict[ServerName, ServerRecord] = {}
        self._keys: dict[str, ServerName] = {}
        self._changing = asyncio.Lock()
        self._log = ChangeLog(store, CHANGES)
        self._following = Following(self._log, self._look_again, self._restore)

    async def __aenter__(self) -> Self:
        self._running.open(await self._records.hash_key())
        await self._following.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._following.aclose()
        await self._running.aclose()

    @property
    def running(self) -> RunningServers:
        """Their executors."""
        return self._running

    @property
    def configuration(self) -> Configuration:
        """The newest that holds."""
        return self._configuration

    def configure(self, configuration: Configuration) -> None:
        """Make the servers of this configuration, which has been checked, those of the file."""
        self._configuration = configuration
        self._make_so()

    def register(self, server: Server) -> None:
        """Register one of the host's code, in place of any other of its id."""
        self._coded[server.name.id] = server
        self._make_so()

    def servers(self, tenant: str) -> tuple[ServerView, ...]:
        """Those that the tenant has: of the file in its order, then added ones."""
        return tuple([self._view(server) for server in self._of(tenant).values()])

    def server(self, tenant: str, name: str) -> ServerView:
        """One of them. Raises `ApiError`."""
        return self._view(self._found(tenant, name))

    def ids(self, tenant: str | None) -> Collection[str]:
        """What a tenant's toolsets may name, None: everybody's; also servers of the file whose entries are wrong."""
        return {*self._configuration.servers.ids, *self._of(tenant)}

    @property
    def _egress(self) -> Egress:
        return Egress(self._configuration.settings.egress.allow)

    def name(self, tenant: str | None, server: str) -> ServerName:
        """Which server a tenant means by an id."""
        own = ServerName(server, tenant)
        return own if own in self._kept else ServerName(server)

    def record(self, tenant: str, server: str) -> DiscoveryRecord:
        """What is known of the server that a tenant means by an id."""
        return self._running.record(self.name(tenant, server))

    def listed(self, tenant: str) -> Mapping[str, Catalog]:
        """The tools of each server that the tenant has, under the server's own names."""
        return {name: self._running.catalog(server.name) for name, server in self._of(tenant).items()}

    def source(self, tenant: str | None, server: str, scope: Scope) -> Source:
        """The source of a toolset of this server; the same object each time. Lists nothing while there is none."""
        return self._running.source(self.name(tenant, server), scope)

    def used(self, tenant: str | None, server: str) -> None:
        """A session begins to use the server: what is known of it is looked at again, in the background."""
        self._running.due(self.name(tenant, server))

    async def add(self, wanted: NewServer, *, by: Principal, request_id: str) -> ServerView:
        """Add a server for the caller's tenant; its discovery has begun when this returns.

        Raises `ApiError` and `StoreError`; then nothing has changed.
        """
        async with self._changing:
            with self._audited("add", wanted.id, by, request_id):
                check_id(wanted.id)
                check_address(wanted.url, wanted.headers, self._egress)
                self._check_room(wanted.id, by)
                record = new_record(wanted, by.tenant, by.subject)
                change = await self._records.keep(record)
                self._put(record)
            await self._log.announce_done(change)
            return self.server(by.tenant, wanted.id)

    async def change(self, server: str, change: ServerChange, *, by: Principal, request_id: str) -> ServerView:
        """Change a server; it is discovered again where it is reached in another way now. Raises like `add`."""
        async with self._changing:
            with self._audited("change", server, by, request_id):
                found = self._found(by.tenant, server)
                if found.name.tenant is None and not change.of_file:
                    raise _in_file(found, "only enabled and tools can be changed here")
                before = self._kept.get(found.name) or ServerRecord(id=server, by=by.subject)
                record = changed_record(before, change, by.subject)
                if change.url is not None or change.headers is not None:
                    check_address(record.url or "", record.headers, self._egress)
                key = await self._records.keep(record)
                self._put(record)
            await self._log.announce_done(key)
            return self.server(by.tenant, server)

    async def remove(self, server: str, *, by: Principal, request_id: str) -> None:
        """Remove a server that was added, with what is known of it. Raises like `add`."""
        async with self._changing:
            with self._audited("remove", server, by, request_id):
                found = self._found(by.tenant, server)
                if found.name.tenant is None:
                    raise _in_file(found, "remove it there")
                change = await self._records.drop(found.name)
            self._drop(found.name)
            await self._running.forget(found.name)
            await self._log.announce_done(change)

    async def discover(self, server: str, *, by: Principal, wait_s: float, request_id: str) -> ServerView:
        """Ask the server for its tools now, waiting at most so long for the answer; a failure stands in the record.

        Raises `ApiError` and `StoreError`.
        """
        with self._audited("discover", server, by, request_id):
            found = self._found(by.tenant, server)
            if not found.enabled:
                raise ApiError("server_disabled", f"MCP server {server!r} is not enabled", param="id")
            await self._running.discovered(found.name, wait_s)
        return self.server(by.tenant, server)

    async def accept(self, server: str, tools: Collection[str] | None, *, by: Principal, request_id: str) -> ServerView:
        """Accept the changed definitions of these tools, None: of all that are quarantined. Raises like `discover`."""
        with self._audited("accept", server, by, request_id):
            found = self._found(by.tenant, server)
            waiting = {tool.name for tool in self._running.record(found.name).tools if tool.quarantined}
            for tool in tools or ():
                if tool not in waiting:
                    message = f"no tool {tool!r} of MCP server {server!r} waits to be accepted"
                    raise ApiError("tool_not_quarantined", message, param="tools")
            await self._running.accept(found.name, tools)
        return self.server(by.tenant, server)

    def _of(self, tenant: str | None) -> dict[str, Server]:
        """The servers that a tenant has by id; its own stands over the file's."""
        mine = {name.id: self._running.tools(name).server for name in self._kept if name.tenant == tenant and tenant}
        files = {name: self._running.tools(ServerName(name)).server for name in self._everybodys()}
        return {**files, **mine}

    def _everybodys(self) -> Mapping[str, Server]:
        """Those that no tenant has for itself."""
        return {**self._configuration.servers.servers, **self._coded}

    def _found(self, tenant: str, name: str) -> Server:
        known = self._of(tenant)
        if name not in known:
            raise not_found(name, known)
        return known[name]

    def _view(self, server: Server) -> ServerView:
        withheld = frozenset[str]()
        if server.name.tenant is None:
            withheld = self._configuration.servers.withheld.get(server.name.id, withheld)
        return server_view(self._running.tools(server.name), self._running.record(server.name), withheld)

    def _check_room(self, name: str, by: Principal) -> None:
        if name in self.ids(by.tenant):
            raise ApiError("server_exists", f"there is an MCP server {name!r} already", param="id")
        added = [record for record in self._kept.values() if record.tenant == by.tenant]
        if len(added) >= MOST_ADDED:
            raise ApiError("too_many_servers", f"a tenant may add {MOST_ADDED} MCP servers")
        for owner, limit in self._configuration.settings.quotas.levels("servers", by.tenant, by.subject):
            if sum(len(owner) == 1 or record.by == by.subject for record in added) >= limit:
                raise quota_exceeded("servers", owner, limit)

    def _wanted(self) -> Iterable[Server]:
        """Every server as it should run now: those of the file with what was changed of them, and the added ones."""
        for server in self._everybodys().values():
            yield _with_change(server, self._kept.get(server.name))
        for record in self._kept.values():
            if record.tenant is not None:
                yield added_server(record)

    def _make_so(self) -> None:
        self._running.run(list(self._wanted()))

    def _put(self, record: ServerRecord) -> None:
        self._kept[record.name] = record
        self._keys[key_of(record.name)] = record.name
        self._make_so()

    def _drop(self, name: ServerName) -> None:
        self._kept.pop(name, None)
        self._make_so()

    async def _look_again(self, change: bytes) -> None:
        async with self._changing:
            record = await self._records.changed(change)
            if record is not None:
                self._put(record)
            elif (name := self._keys.pop(change.decode(), None)) is not None:
                self._drop(name)

    async def _restore(self) -> None:
        async with self._changing:
            self._kept = {record.name: record for record in await self._records.every()}
            self._keys = {key_of(name): name for name in self._kept}
            self._make_so()

    @contextmanager
    def _audited(self, what: str, server: str, by: Principal, request_id: str) -> Generator[None]:
        """One line for what is done in the block, or refused; an id that nobody has is not repeated."""
        try:
            yield
        except Exception:
            self._audit(what, "refused", server, by, request_id)
            raise
        self._audit(what, "done", server, by, request_id)

    def _audit(self, what: str, outcome: str, server: str, by: Principal, request_id: str) -> None:
        target = server if server in self.ids(by.tenant) else "_unknown"
        audit(f"mcp_server.{what}", outcome, by, target, request_id)


def _with_change(server: Server, record: ServerRecord | None) -> Server:
    """A server of the file with what was changed of it over HTTP; where that gives rules, they replace the file's."""
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


def _in_file(server: Server, fix: str) -> ApiError:
    message = f"MCP server {server.name.id!r} is defined in the file ({server.origin()}); {fix}"
    return ApiError("in_file", message, param="id")
