"""Servers whose tools toolsets can have, as the host sees them: those of MCP, which a part runs.

The part has a `ServerKind` as `HostPart.servers`. A host without one has `NO_ENTRIES` and `NoServers`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.cluster.processes import ProcessRequests
from toolplug.config.document import Document
from toolplug.errors import ApiError, Problem
from toolplug.execution.live import LiveCatalog
from toolplug.execution.metrics import UncheckedCollector
from toolplug.execution.plans import CallServices, Policy, ToolRule
from toolplug.execution.resolved_limits import Limits
from toolplug.execution.user_auth import UserAuth
from toolplug.host.file.settings import Scope
from toolplug.mcp_extensions import McpExtension
from toolplug.part_protocols.host_part import HostPart
from toolplug.stores.store import Store
from toolplug.toolsets.toolset import SharedSource, Source

SECTION = "mcp_servers"
"""The section of the file with one entry for each server."""

SERVER_KIND = "mcp"
"""The `kind` of the `ref` of a server's tool."""

Status = Literal["never", "discovering", "success", "failed"]


class ConfiguredServer(Protocol):
    """A valid entry of the file; `origin` returns the place of a key by its path."""

    @property
    def id(self) -> str: ...
    @property
    def enabled(self) -> bool: ...
    @property
    def prefix(self) -> str | None: ...
    @property
    def url(self) -> str: ...
    @property
    def user_auth(self) -> UserAuth | None: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def tools(self) -> Mapping[str, ToolRule]: ...
    @property
    def origin(self) -> Callable[..., str]: ...


class ServerEntries(Protocol):
    """The entries of the file by id, with the ids and the `problems` of invalid ones, which the host runs without.

    `documents` has the file of each entry, and `model` describes one. What is written here is how a file without the
    section reads.
    """

    @property
    def servers(self) -> Mapping[str, ConfiguredServer]:
        return {}

    @property
    def ids(self) -> tuple[str, ...]:
        return ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        return ()

    @property
    def documents(self) -> Mapping[str, Document]:
        return {}

    @property
    def model(self) -> type[BaseModel]:
        return BaseModel

    def warnings(self, document: Document) -> Iterator[Problem]:
        """Yield what `toolplug doctor` warns of; `document` is the host's own file."""
        return iter(())

    def lock(self, tools: Callable[[str], Mapping[str, str]]) -> ServerEntries:
        """Return the entries, of whose tools those alone may be called whose digests are given for the server."""
        return self


class NoEntries(ServerEntries):
    """No entries: the file has no such section."""


NO_ENTRIES = NoEntries()


class DiscoveredTool(Protocol):
    """A tool that a server has listed, by its own name there."""

    @property
    def name(self) -> str: ...
    @property
    def definition(self) -> ToolDefinition: ...
    @property
    def quarantined(self) -> bool: ...


class Discovered(Protocol):
    """The result of the last listing of a server; `stale` tools are those of an earlier one."""

    @property
    def status(self) -> Status: ...
    @property
    def tools(self) -> Sequence[DiscoveredTool]: ...
    @property
    def last_discovery(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def stale(self) -> bool: ...
    @property
    def announces_changes(self) -> bool | None: ...


class HostServer(Protocol):
    """A server as a tenant has it. `tools` has the policies of rules, `unmatched` the rules without a tool.

    `transport` is how it is reached, without secrets.
    """

    @property
    def id(self) -> str: ...
    @property
    def source(self) -> Literal["file", "api"]: ...
    @property
    def enabled(self) -> bool: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def transport(self) -> Mapping[str, object]: ...
    @property
    def tools(self) -> Mapping[str, Policy]: ...
    @property
    def unmatched(self) -> tuple[str, ...]: ...
    @property
    def origin(self) -> str: ...
    @property
    def record(self) -> Discovered: ...
    @property
    def summary(self) -> str: ...


class ToolServers(Protocol):
    """The servers of an entered host. Each tenant has those of the file and of the host's code, and its own.

    What is written here is how a host without a part that runs servers answers.
    """

    async def configure(self, entries: ServerEntries) -> None:
        """Replace the servers of the file. Raises `StoreError`."""

    def register(self, server: ConfiguredServer) -> None:
        """Register a server of the host's code, in place of any other of its id."""

    def servers(self, tenant: str) -> Sequence[HostServer]:
        """Return the servers of a tenant."""
        return ()

    def ids(self, tenant: str | None) -> Collection[str]:
        """Return the ids that toolsets may name: of a tenant, or None for those of the file and of the host's code."""
        return ()

    def record(self, tenant: str, server: str) -> Discovered | None:
        """Return the result of the last listing of a tenant's server."""
        return None

    async def discover(self, by: Principal, server: str) -> Discovered:
        """List the tools of a caller's server now, and wait for it. Raises `ApiError` and `StoreError`."""
        raise ApiError("server_not_found", "no such MCP server", param="id")

    def catalogs_of(self, tenant: str) -> Mapping[str, Catalog]:
        """Return the tools of each server of a tenant, under the server's own names."""
        return {}

    def source(self, tenant: str | None, server: str, scope: Scope) -> Source:
        """Return the source of a toolset of this server, the same object each time; empty while there is no server."""
        ...

    def refresh_server(self, tenant: str | None, server: str) -> None:
        """Take note that a session begins to use the server's tools."""

    def collectors(self, namespace: str) -> Iterable[UncheckedCollector]:
        """Return the collectors of their metrics."""
        return ()


class NoServers(ToolServers):
    """The servers of a host without a part that runs any."""

    def __init__(self, services: CallServices) -> None:
        self._empty = SharedSource(executor=LiveCatalog(services.unknown))

    def source(self, tenant: str | None, server: str, scope: Scope) -> Source:
        """Return the empty source, of a stored toolset whose server cannot be used."""
        return self._empty


class ServerServices(NamedTuple):
    """What the part needs to run the servers.

    * `configuration` returns the configuration of the host as it is now (`toolplug.host.file.configuration`)
    * `coded`: the servers that the host's code describes
    * `serving`: False to list no server unless that is asked for
    * `extensions` returns those of the protocol that the plugins of the host have now
    """

    store: Store
    calls: CallServices
    requests: ProcessRequests
    # `Any`: the module of the type imports this one.
    configuration: Callable[[], Any]
    coded: Sequence[ConfiguredServer]
    serving: bool
    extensions: Callable[[], Sequence[McpExtension]] = tuple


class EntrySchema(NamedTuple):
    """The JSON Schema of the section: its `description`, the pattern of ids, and of one entry the model.

    `name` is that of an entry among the definitions, `owner` that of the model's own; one of `either` must match.
    """

    name: str
    owner: str
    model: type[BaseModel]
    description: str
    id_pattern: str
    either: Sequence[Mapping[str, object]]


class ServerKind(NamedTuple):
    """Servers that a part brings, before any host runs.

    * `read` returns the entries of a document and of the user's own file, which may be absent, with an environment;
      `taken` maps the prefixes of toolsets to their owners, as text for messages
    * `open` runs them while it is entered. Raises `StoreError`.
    """

    read: Callable[[Document, Path | None, Mapping[str, str], Mapping[str, str]], ServerEntries]
    schema: Callable[[], EntrySchema]
    open: Callable[[ServerServices], AbstractAsyncContextManager[ToolServers]]


def server_kind(parts: Iterable[HostPart[Any]]) -> ServerKind | None:
    """Return the kind of servers that one of these parts brings; None if none does."""
    return next((part.servers() for part in parts if part.servers is not None), None)


@asynccontextmanager
async def open_servers(parts: Sequence[HostPart[Any]], services: ServerServices) -> AsyncGenerator[ToolServers]:
    """Run the servers whose tools toolsets can have."""
    kind = server_kind(parts)
    if kind is None:
        yield NoServers(services.calls)
        return
    async with kind.open(services) as servers:
        yield servers
