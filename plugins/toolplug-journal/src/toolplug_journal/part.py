"""The part of the host that collectors and `/readyz` use: the section `journal` of the file."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from toolplug import HostPart, PartServices, RunningPart
from toolplug_journal.provider import Journal


class Collecting(BaseModel):
    """The journal of all tenants over HTTP, and whether the host is ready without one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    entry: Annotated[str, Field(description="the key of the journal under providers")] = "journal"
    unready_after: Annotated[
        float, Field(ge=0, le=86_400, description="seconds of failed writes after which /readyz says so; 0: never")
    ] = 60.0


class JournalPart(RunningPart[Collecting]):
    """Finds the journal that runs, which a reload may replace."""

    def __init__(self, services: PartServices, settings: Collecting) -> None:
        self._plugins = services.plugins
        self._settings = settings

    def configure(self, settings: Collecting | None) -> None:
        """Use other settings."""
        self._settings = settings or self._settings

    async def aclose(self) -> None:
        """Nothing is open."""

    @property
    def journal(self) -> Journal | None:
        """The journal that runs, None if it is switched off."""
        found: object = self._plugins.get_plugin(self._settings.entry)
        return found if isinstance(found, Journal) else None

    async def ready(self) -> str:
        """Return why calls are not kept."""
        most = self._settings.unready_after
        journal = self.journal
        if journal is None:
            return f"no journal runs as provider {self._settings.entry!r}"
        # The same text at each question: the log has one line for each change.
        return f"the journal has not been written for {most:g} s or more" if 0 < most <= journal.failing_s else ""


async def open_part(services: PartServices, settings: Collecting) -> JournalPart:
    """Open the part; the journal itself is the provider's."""
    return JournalPart(services, settings)


PART = HostPart(
    name="journal",
    settings=Collecting,
    open=open_part,
    routes=lambda: import_module("toolplug_journal.routes").ROUTES,
    paths=("/v1/journal",),
    address="/v1/journal/all",
)
