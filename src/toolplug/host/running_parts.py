"""The parts of an entered host that are open: those whose section the file has, or had when they were opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from toolplug.catalog.plan import Tool
from toolplug.execution.host_sessions import NO_SESSIONS, HostSession, HostSessions
from toolplug.host.file.configuration import Configuration
from toolplug.providers.host_part import PartGate, PartServices, RunningPart

P = TypeVar("P")


class RunningParts:
    """Opens the parts that a configuration has a section for, and closes them in reverse order.

    `sessions` are those of the part that has some.
    """

    def __init__(self, services: PartServices, configuration: Configuration) -> None:
        self._services = services
        self._first = configuration
        self._open: dict[str, RunningPart[Any]] = {}
        self._life = AsyncExitStack()
        self.sessions: HostSessions = NO_SESSIONS

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
        begun: list[RunningPart[Any]] = []
        # What is always there is opened first, and so closed last: a response has its session until it has ended.
        for part in sorted(configuration.parts, key=lambda part: part.default is None):
            settings = getattr(configuration.settings, part.name)
            running = self._open.get(part.name)
            if running is not None:
                running.configure(settings)
            elif settings is not None:
                running = self._open[part.name] = await part.open(self._services, settings)
                self._life.push_async_callback(running.aclose)
                begun.append(running)
        for running in begun:
            self.sessions = running.sessions or self.sessions
        for running in begun:
            running.begin()

    async def down(self) -> list[tuple[str, str]]:
        """Return the name and the reason of each part that cannot do its work now, in order."""
        reasons = [(name, await part.ready()) for name, part in [*self._open.items()]]
        return [(name, reason) for name, reason in reasons if reason]

    def session_over(self, code: str) -> None:
        """Let each part forget a session that has ended."""
        for part in self._open.values():
            part.session_over(code)

    def explain(self, name: str, tool: Tool | None, session: HostSession | None) -> Iterator[PartGate]:
        """Yield what each part decides about a call of this tool, or of a name that no catalog lists."""
        for part in self._open.values():
            yield from part.explain(name, tool, session)

    def stop(self) -> None:
        """Let each part end its event streams."""
        for part in self._open.values():
            part.stop()

    def find(self, kind: type[P]) -> P | None:
        """Return the open part of this class, None if there is none."""
        return next((part for part in self._open.values() if isinstance(part, kind)), None)
