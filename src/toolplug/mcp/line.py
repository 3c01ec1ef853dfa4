"""What carries the calls of a server's tools to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from toolplug.catalog.call import Report
from toolplug.execution.source_away import SourceAway
from toolplug.mcp.connection import Answer


class ServerDown(SourceAway):
    """The server cannot be reached, or went away before it had answered; why, stands in the log."""

    def __init__(self, server: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"its server {server!r} is down", code="server_down", retry_after_s=retry_after_s)


class Line(Protocol):
    """One way to a server: its connection for everybody, that of a session, or one for each call."""

    async def call(self, name: str, arguments: Mapping[str, object], report: Report | None) -> Answer:
        """Run a tool by the server's own name for it. Raises `ServerDown`, `ServerRefused` and `BadAnswer`."""
        ...

    async def aclose(self) -> None:
        """End it: what still runs raises `ServerDown`, and so does every later call."""
        ...
