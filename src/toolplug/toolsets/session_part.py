"""One session's share of a toolset whose factory runs once for each session."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from toolplug.catalog.catalog import EMPTY_CATALOG
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.live import Joint, LiveCatalog
from toolplug.execution.switch import SourceSwitch
from toolplug.toolsets.around import Around
from toolplug.toolsets.declared import declared
from toolplug.toolsets.opened import NotOpened, Opened
from toolplug.toolsets.toolset import PerSession, Toolset


class SessionPart:
    """Lists the declared tools, or nothing until the factory has run; then what its executor lists.

    `live` is the toolset under its prefix. A factory that fails is not run again for this session.
    """

    def __init__(self, toolset: Toolset, source: PerSession, around: Around) -> None:
        self._opened = Opened(toolset.id, source.factory)
        self._switch = SourceSwitch()
        self._joint = Joint(around.unknown)
        self.waits: bool = source.tools is None
        if source.tools is None:
            self._declared = LiveCatalog(around.unknown)
            self.live: LiveCatalog = self._joint.view(lambda catalog: catalog.prefixed(toolset.prefix))
        else:
            tools = declared(toolset, source.tools, around, self._switch, self._kept_open)
            self.live = self._declared = LiveCatalog(around.unknown, tools)

    async def open(self) -> None:
        """Run the factory of a toolset that declares no tools, so that they are listed; does nothing where it fails."""
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
        """Take no more calls, list nothing, and close what the factory made."""
        self._switch.open = self.waits = False
        self._joint.join()
        self._declared.publish(EMPTY_CATALOG)
        await self._opened.aclose()

    @asynccontextmanager
    async def _kept_open(self) -> AsyncGenerator[ToolExecutor]:
        yield await self._opened.executor()
