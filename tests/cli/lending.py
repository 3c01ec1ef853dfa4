"""Applications that lend tools: one that did so in an earlier run of its host, and one that does now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.http.served import served

from toolplug import Principal, ToolError, open_host
from toolplug.client import Application
from toolplug.http import create_app
from toolplug.parts.sessions.tools.negotiation import Registration, ToolChanges

WRITE: dict[str, object] = {
    "name": "write",
    "description": "Write an entry.\nNo more.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "requires": ["storage", {"type": "messaging", "level": "basic"}],
}
READ: dict[str, object] = {"name": "read", "inputSchema": {"type": "object"}}
CAPABILITIES = [
    {"type": "storage", "level": "advanced", "resources": ["disk"]},
    {"type": "messaging", "level": "basic"},
]


def lent(
    config: Path, *, tenant: str = "default", changes: Sequence[ToolChanges] = (), reason: str = "", end: bool = False
) -> str:
    """The code of a session in the configuration's store, whose host has stopped since."""
    return asyncio.run(_lent(config, tenant, changes, reason, end))


async def _lent(config: Path, tenant: str, changes: Sequence[ToolChanges], reason: str, end: bool) -> str:
    owner = Principal(tenant=tenant)
    async with open_host(config) as host:
        session, _ = await host.sessions.create(owner)
        await session.register(
            Registration(
                plugin_type="diary", tools=[WRITE], capabilities=CAPABILITIES, environment={"version": "1\x1b[2J"}
            )
        )
        for change in changes:
            await session.update(change, reason)
        if end:
            await host.sessions.end(session, owner)
        return session.code


class Lending(NamedTuple):
    """An application that is connected, and where its host is served."""

    application: Application
    url: str

    @property
    def code(self) -> str:
        return self.application.code


@asynccontextmanager
async def lending(config: Path, *, api_key: str | None = None) -> AsyncIterator[Lending]:
    """A served host, and a diary whose tools are called while the block lasts."""
    host = open_host(config)
    with served(host, create_app(host)) as port:
        url = f"http://127.0.0.1:{port}"
        application = Application(url, plugin_type="diary", api_key=api_key)

        @application.tool(name="diary.write")
        async def write(text: str, day: int = 1) -> dict[str, object]:
            """Write an entry."""
            return {"text": text, "day": day}

        @application.tool
        async def fails() -> None:
            raise ToolError("no luck")

        async with application:
            yield Lending(application, url)
