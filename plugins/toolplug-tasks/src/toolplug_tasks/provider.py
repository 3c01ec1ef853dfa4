"""The plugin: its hooks, over the part of the host that runs the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from toolplug import FunctionProvider, HostPart, McpExtension, ProviderContext, Ticket
from toolplug_tasks.part import TasksPart
from toolplug_tasks.settings import TaskSettings


class Tasks(FunctionProvider):
    """Tasks of Model Context Protocol; its settings are here or in the section `tasks` of the file."""

    Config = TaskSettings

    _site: ProviderContext

    async def start(self, site: ProviderContext) -> None:
        """Remember where the part is found, which is opened after the providers."""
        self._site = site

    @staticmethod
    def host_part() -> HostPart[Any]:
        """Offer the section `tasks`, and `/v1/tasks`."""
        part: HostPart[Any] = import_module("toolplug_tasks.part").PART
        return part

    def mcp_extensions(self) -> Sequence[McpExtension]:
        """Return the extension while the part is open."""
        part = self._part()
        return () if part is None else (part.extension,)

    def approval_decided(self, ticket: Ticket) -> None:
        """Let the tasks go on that wait for this decision."""
        part = self._part()
        if part is not None:
            part.tell_decision(ticket)

    def _part(self) -> TasksPart | None:
        try:
            return self._site.service(TasksPart)
        except LookupError:  # the host starts
            return None
