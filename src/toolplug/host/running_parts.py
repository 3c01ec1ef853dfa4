"""The parts of an entered host that are open: those whose section the file has, or had when they were opened."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from toolplug.host.file.configuration import Configuration
from toolplug.providers.host_part import PartServices, RunningPart

P = TypeVar("P")


class RunningParts:
    """Opens the parts that need no section or that the configuration has one for; closes them in reverse order."""

    def __init__(self, services: PartServices, configuration: Configuration) -> None:
        self._services = services
        self._first = configuration
        self._open: dict[str, RunningPart[Any]] = {}
        self._life = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self.configure(self._first)
        except BaseException:
            await self._life.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._life.aclose()

    async def configure(self, configuration: Configuration) -> None:
        """Apply a configuration: open what it has a section for, and tell those that are open.

        Raises `ConfigError` and `StoreError` of a part that cannot be opened.
        """
        for part in configuration.parts:
            settings = part.settings_in(configuration.settings)
            running = self._open.get(part.name)
            if running is not None:
                running.configure(settings)
            elif settings is not None or part.settings is None:
                running = self._open[part.name] = await part.open(self._services, settings)
                self._life.push_async_callback(running.aclose)

    async def down(self) -> list[tuple[str, str]]:
        """Return the name and the reason of each part that cannot do its work now, in order."""
        reasons = [(name, await part.ready()) for name, part in [*self._open.items()]]
        return [(name, reason) for name, reason in reasons if reason]

    def session_over(self, code: str) -> None:
        """Let each part forget a session that has ended."""
        for part in self._open.values():
            part.session_over(code)

    def stop(self) -> None:
        """Let each part end its event streams."""
        for part in self._open.values():
            part.stop()

    def find(self, kind: type[P]) -> P | None:
        """Return the open part of this class, None if there is none."""
        return next((part for part in self._open.values() if isinstance(part, kind)), None)
