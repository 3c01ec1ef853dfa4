"""A toolset whose factory runs once for each session, as callers without a session meet it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from toolplug.catalog.catalog import EMPTY_CATALOG
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.live import LiveCatalog
from toolplug.execution.switch import SourceSwitch
from toolplug.toolsets.around import Around
from toolplug.toolsets.declared import declared
from toolplug.toolsets.opened import Opened
from toolplug.toolsets.toolset import PerSession, Toolset


class LonePart:
    """Lists the declared tools; each call has an executor of its own, which is closed when the call has ended.

    Without declared tools it lists nothing. `live` is the toolset under its prefix.
    """

    def __init__(self, toolset: Toolset, source: PerSession, around: Around) -> None:
        self._toolset = toolset
        self._source = source
        self._switch = SourceSwitch()
        listed = EMPTY_CATALOG.prefixed(toolset.prefix)
        if source.tools is not None:
            listed = declared(toolset, source.tools, around, self._switch, self._opened_once)
        self.live: LiveCatalog = LiveCatalog(around.unknown, listed)

    def retire(self) -> None:
        """Take no more calls; those that run go on."""
        self._switch.open = False

    @asynccontextmanager
    async def _opened_once(self) -> AsyncGenerator[ToolExecutor]:
        opened = Opened(self._toolset.id, self._source.factory)
        try:
            yield await opened.executor()
        finally:
            await opened.aclose()
