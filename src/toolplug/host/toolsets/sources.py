"""The toolset sources of plugins in a running host: each is open in a task of its own, and its tools are an executor.

What a source lists is untrusted: definitions are cleaned like those of an MCP server.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Tool
from toolplug.crashes import CodeOwner, log_crash
from toolplug.errors import InvalidDefinition, ToolUnavailable
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.live import LiveCatalog
from toolplug.execution.plans import CallServices, PlanBuilder, PlanSource
from toolplug.execution.resolved_limits import LimitLevel
from toolplug.foreign.definitions import sanitise_tool
from toolplug.providers.offering.definitions import OpenToolsetSource, ToolsetLink, ToolsetSource
from toolplug.providers.plugins.registration import PluginManager
from toolplug.runtime.backoff import pause_after
from toolplug.runtime.tasks import BackgroundTasks, in_slices

_LOG = logging.getLogger("toolplug.host")

KIND = "remote"
"""The `kind` of the `ref` of a tool whose source is a plugin's."""
FIRST_LISTING_S = 3.0
"""How long the start of a host waits for sources that have not opened yet."""
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0


class _Wanted(NamedTuple):
    kind: str
    link: ToolsetLink
    opens: OpenToolsetSource | None


class _Linked:
    """One toolset's source: the executor of its tools, which stays while the source is opened again."""

    def __init__(self, services: CallServices, wanted: _Wanted) -> None:
        self.wanted: _Wanted = wanted
        self.live: LiveCatalog = LiveCatalog(services.unknown)
        self.source: ToolsetSource | None = None
        self.ready: asyncio.Event = asyncio.Event()
        self._services = services
        self._task: asyncio.Task[None] | None = None
        self._failures = 0

    def start(self, tasks: BackgroundTasks) -> None:
        """Open the source in the background."""
        name = f"toolplug-toolset-source-{self.wanted.link.toolset}"
        self._task = tasks.start(self._run(), name)

    def stop(self) -> None:
        """Close the source in the background; its tools are listed no longer."""
        if self._task is not None:
            self._task.cancel()
        self.live.publish(Catalog())

    async def _run(self) -> None:
        kind, link, opens = self.wanted
        while opens is not None:
            try:
                async with opens(link) as source:
                    await self._follow(source)
            except Exception as error:  # noqa: BLE001  code of a plugin
                then = "its tools are unavailable until it can be opened"
                log_crash(f"the source {kind!r} of toolset {link.toolset!r}", error, CodeOwner(kind), then=then)
            finally:
                self.source = None
                self.ready.set()
            self._failures += 1
            # At random, so that all toolsets that lost one host do not come back to it in the same moment.
            await asyncio.sleep(pause_after(self._failures, _FIRST_PAUSE_S, _LAST_PAUSE_S) * random.uniform(0.5, 1))
        self.ready.set()

    async def _follow(self, source: ToolsetSource) -> None:
        """Publish the tools of the source now and after each change, until this task is cancelled."""
        changed = asyncio.Event()
        source.on_change(changed.set)
        self.source = source
        while True:
            # Before the tools are read: a change in between is published in the next round.
            changed.clear()
            await self._publish(source.tools())
            self._failures = 0  # one that was open is opened again soon, however often it was lost before
            self.ready.set()
            await changed.wait()

    async def _publish(self, listed: Sequence[Mapping[str, object]]) -> None:
        toolset, before = self.wanted.link.toolset, self.live.catalog
        level = LimitLevel((KIND, toolset))
        builder = PlanBuilder(self._services, level)
        tools: dict[str, Tool] = {}
        async for raw in in_slices(listed):
            try:
                read, _ = sanitise_tool(raw, toolset)
            except InvalidDefinition as error:
                _LOG.warning("a tool of toolset %r is left out: %s", toolset, error)
                continue
            definition = read.owned_by(KIND, toolset)
            known = before.get(definition.name)
            # The old tool and its plan stay, so that nothing is made again that has not changed.
            if known is not None and known.definition.signature == definition.signature:
                tools.setdefault(definition.name, known)
            else:
                tools.setdefault(definition.name, self._tool(definition, builder))
        self.live.publish(Catalog(tools.values()))

    def _tool(self, definition: ToolDefinition, builder: PlanBuilder) -> Tool:
        toolset, accounting = self.wanted.link.toolset, self._services.accounting
        counters = accounting.capped_counters(f"{KIND}:{toolset}", definition.ref.name)
        source = PlanSource(self._call, SourceSwitch(), counters, accounting.abandoned_limit(KIND, toolset))
        return Tool(definition, builder.build(definition, source))

    async def _call(self, call: ToolCall, context: CallContext) -> ToolResult:
        if self.source is None:
            raise ToolUnavailable(f"its source {self.wanted.kind!r} is not open", code="source_closed")
        return await self.source.execute(call, context)


class ToolsetSources:
    """The sources of the toolsets of the file. `host` is the id of this host."""

    def __init__(self, services: CallServices, plugins: PluginManager, host: str) -> None:
        self.host: str = host
        self._services = services
        self._plugins = plugins
        self._linked: dict[str, _Linked] = {}
        self._tasks = BackgroundTasks()

    def configure(self, links: Mapping[str, tuple[str, ToolsetLink]]) -> None:
        """Have a source for each toolset, by id: its kind and link. One that has not changed stays open."""
        opens = self._plugins.toolset_sources()
        wanted = {name: _Wanted(kind, link, opens.get(kind)) for name, (kind, link) in links.items()}
        for name in [name for name, linked in self._linked.items() if wanted.get(name) != linked.wanted]:
            self._linked.pop(name).stop()
        for name, item in wanted.items():
            if name not in self._linked:
                self._linked[name] = _Linked(self._services, item)
                self._linked[name].start(self._tasks)

    async def wait_until_listed(self) -> None:
        """Wait until each source has listed its tools or failed, for a few seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LISTING_S):
                for linked in list(self._linked.values()):
                    await linked.ready.wait()

    def executor(self, toolset: str) -> LiveCatalog:
        """Return the tools of the source of a toolset, under their own names."""
        return self._linked[toolset].live

    def hosts(self, definition: ToolDefinition) -> tuple[str, ...]:
        """Return the ids of the hosts between this one and a tool, the nearest first; empty for a tool of this host."""
        ref = definition.ref
        linked = self._linked.get(ref.source) if ref.kind == KIND else None
        return () if linked is None or linked.source is None else linked.source.hosts(ref.name)

    def problem(self, toolset: str) -> str | None:
        """Return why the tools of a toolset's source cannot be called now; None if they can, or for no such source."""
        linked = self._linked.get(toolset)
        if linked is None:
            return None
        if linked.source is not None:
            return linked.source.problem()
        if linked.wanted.opens is None:
            return f"the plugin {linked.wanted.kind!r} does not run"
        return f"its source {linked.wanted.kind!r} is not open"

    async def aclose(self) -> None:
        """Close every source."""
        for linked in self._linked.values():
            linked.stop()
        await self._tasks.cancel()
