"""Who asks, and with which tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from toolplug.catalog.call import CallContext
from toolplug.catalog.catalog import Catalog
from toolplug.execution.executor import ToolExecutor
from toolplug.mcp.changes import Watch


def _nobody(catalog: Catalog) -> None:
    """Nobody wants to know."""


class Caller(NamedTuple):
    """Everything that answering a request needs to know of the one who asks.

    `context` is that of the caller's calls. `catalog` gives what they list, once everything that lists later is open;
    it raises what the host raises for a caller who may not. `watch` follows it from now on. `listed` hears of each
    catalog from which the caller was shown a page.
    """

    executor: ToolExecutor
    context: CallContext
    catalog: Callable[[], Awaitable[Catalog]]
    watch: Callable[[], Watch]
    listed: Callable[[Catalog], None] = _nobody
