"""The part of the host that runs tasks: the section `tasks` of the file, and `/v1/tasks`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from toolplug import HostPart, PartServices, RunningPart, Ticket
from toolplug.runtime import import_in_thread
from toolplug_tasks.settings import TaskSettings


class TasksPart(RunningPart[TaskSettings]):
    """The tasks of a host, and the extension of the protocol over them."""

    def __init__(self, services: PartServices, settings: TaskSettings, code: ModuleType) -> None:
        self._plugins = services.plugins
        self._section = settings
        self.tasks: Any = code.RunningTasks(services, self.read_settings)
        self.extension: Any = code.TasksExtension(self.tasks)

    def configure(self, settings: TaskSettings | None) -> None:
        """Use other settings, for calls that begin from now on."""
        self._section = settings or TaskSettings()

    def read_settings(self) -> TaskSettings:
        """Return the keys of the section, then those of the entry under `providers`."""
        entries = (getattr(plugin, "config", None) for plugin in self._plugins.get_plugins())
        entry = next((found for found in entries if isinstance(found, TaskSettings)), self._section)
        section = {name: getattr(self._section, name) for name in self._section.model_fields_set}
        return entry.model_copy(update=section)

    def tell_decision(self, ticket: Ticket) -> None:
        """Let the tasks go on that wait for this decision."""
        self.tasks.decisions.tell(ticket)

    async def finish(self) -> None:
        """Keep the results of the tasks of this process."""
        await self.tasks.finish()

    async def aclose(self) -> None:
        """End the tasks of this process."""
        await self.extension.aclose()
        await self.tasks.aclose()


async def _open(services: PartServices, settings: TaskSettings) -> TasksPart:
    # The SDK of the protocol, a second at the first time.
    code = await import_in_thread("toolplug_tasks.extension", after="mcp")
    return TasksPart(services, settings, code)


PART = HostPart(
    name="tasks",
    settings=TaskSettings,
    always=True,
    open=_open,
    routes=lambda: import_module("toolplug_tasks.routes").ROUTES,
    paths=("/v1/tasks",),
    address="/v1/tasks",
)
