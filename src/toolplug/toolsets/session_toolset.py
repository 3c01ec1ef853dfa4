"""Toolsets with an executor for each session, for each call, or on first use."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.offering import Offering
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.limits.limiters import SourceSwitch
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.plans import CallServices
from toolplug.toolsets.declared import declare_tools
from toolplug.toolsets.opened import NotOpened, Opened
from toolplug.toolsets.toolset import OnDemand, PerSession, Toolset

_LOG = logging.getLogger("toolplug.toolsets")


class LazyToolset:
    """Lists the tools of the session's own executor; `live` has them under the toolset's prefix, by `reshape`."""

    def __init__(
        self, toolset: Toolset, source: OnDemand, services: CallServices, reshape: Callable[[Catalog, Toolset], Catalog]
    ) -> None:
        self._name = toolset.id
        self._executor = source.make()
        self._joint = MergedExecutor(services.unknown, self._executor)
        self.live: LiveCatalog = self._joint.view(lambda catalog: reshape(catalog, toolset))

    @property
    def offering(self) -> Offering:
        """The prompts and resources of the session's own executor, without the prefix."""
        return self._executor.offering

    async def aclose(self) -> None:
        """List no tools, and close the executor."""
        self._joint.join()
        try:
            await self._executor.aclose()
        except Exception:  # noqa: BLE001  a session's end must reach its other toolsets
            _LOG.exception("toolset %r: the executor of a session could not be closed", self._name)


class PerCallToolset:
    """Lists the declared tools; each call has its own executor, which is closed after the call.

    Without declared tools it lists nothing. `live` has the tools under the toolset's prefix.
    """

    def __init__(self, toolset: Toolset, source: PerSession, services: CallServices) -> None:
        self._toolset = toolset
        self._source = source
        self._switch = SourceSwitch()
        listed = EMPTY_CATALOG.prefixed(toolset.prefix)
        if source.tools is not None:
            listed = declare_tools(toolset, source.tools, services, self._switch, self._opened_once)
        self.live: LiveCatalog = LiveCatalog(services.unknown, listed)

    def retire(self) -> None:
        """Refuse new calls; running ones go on."""
        self._switch.open = False

    @asynccontextmanager
    async def _opened_once(self) -> AsyncGenerator[ToolExecutor]:
        opened = Opened(self._toolset.id, self._source.factory)
        try:
            yield await opened.executor()
        finally:
            await opened.aclose()


class SessionToolset:
    """Lists the declared tools, or none, until the factory has run; then those of its executor.

    `live` has them under the toolset's prefix. A factory that fails is not run again for this session.
    """

    def __init__(self, toolset: Toolset, source: PerSession, services: CallServices) -> None:
        self._opened = Opened(toolset.id, source.factory)
        self._switch = SourceSwitch()
        self._joint = MergedExecutor(services.unknown)
        self.waits: bool = source.tools is None
        if source.tools is None:
            self._declared = LiveCatalog(services.unknown)
            self.live: LiveCatalog = self._joint.view(toolset.rename_tools)
        else:
            tools = declare_tools(toolset, source.tools, services, self._switch, self._kept_open)
            self.live = self._declared = LiveCatalog(services.unknown, tools)

    async def open(self) -> None:
        """Run the factory of a toolset without declared tools, so that its tools are listed; ignore its failure."""
        if not self.waits:
            return
        try:
            executor = await self._opened.executor()
        except NotOpened:
            self.waits = False
            return
        if self.waits:
            self.waits = False
            self._joint.join(executor)

    async def aclose(self) -> None:
        """Refuse new calls, list no tools, and close what the factory made."""
        self._switch.open = self.waits = False
        self._joint.join()
        self._declared.publish(EMPTY_CATALOG)
        await self._opened.aclose()

    @asynccontextmanager
    async def _kept_open(self) -> AsyncGenerator[ToolExecutor]:
        yield await self._opened.executor()
