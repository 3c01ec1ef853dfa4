"""Who asks for a response, and with which tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from toolplug.catalog.call import CallContext
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.execution.executor import ToolExecutor
from toolplug.responses.offer import OnRequest

Decide = Callable[[str, bool], Awaitable[None]]
"""Takes a ticket and whether its call is approved; does nothing where the asker may not decide."""


def nothing_on_request(tool: ToolDefinition) -> bool:
    """Every tool is offered."""
    return False


async def decided_elsewhere(ticket: str, approve: bool) -> None:
    """The asker decides nothing."""


class Asker(NamedTuple):
    """The tools of one response.

    `context` is that of each call; `listing` gives the catalog of a turn, where reading it takes more than
    `executor.catalog`; `strict`: a stub that nobody declares refuses the request.
    """

    executor: ToolExecutor
    context: CallContext = CallContext()
    listing: Callable[[], Awaitable[Catalog]] | None = None
    on_request: OnRequest = nothing_on_request
    decide: Decide = decided_elsewhere
    strict: bool = False

    async def catalog(self) -> Catalog:
        """The tools as they are now."""
        return self.executor.catalog if self.listing is None else await self.listing()
