"""What a host gives its MCP servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from toolplug.catalog.plan import Approval
from toolplug.discovery.service import Discovery
from toolplug.host.file.configuration import Configuration
from toolplug.host.servers.coded import CodedMcp
from toolplug.host.servers.desk import ServerDesk
from toolplug.host.servers.running import RunningServers
from toolplug.host.servers.sdk import Connections
from toolplug.host.setup.toolsets import toolsets_around
from toolplug.providers.registry import FunctionRegistry
from toolplug.stores.store import Store


@asynccontextmanager
async def server_desk(
    configuration: Configuration,
    registry: FunctionRegistry,
    store: Store,
    approvals: Approval,
    coded: Sequence[CodedMcp],
    *,
    serving: bool,
) -> AsyncGenerator[ServerDesk]:
    """The servers of the configuration, of the host's code and of the store. Raises `StoreError`.

    Unless it is `serving`, nothing is discovered but what is asked for.
    """
    described = {item.server.name.id: item.server for item in coded if item.server is not None}
    around = replace(toolsets_around(registry, lambda: desk.configuration), approvals=approvals)
    async with Discovery(store) as discovery:
        running = RunningServers(around, discovery, Connections(lambda: desk.configuration).connect, serving=serving)
        desk = ServerDesk(configuration, store, running, described)
        async with desk:
            yield desk
