"""Importing the MCP SDK when it is first needed: to connect to servers, and to serve clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import cast

from toolplug.execution.egress import Egress
from toolplug.host.file.configuration import Configuration
from toolplug.mcp.connection import Connect, ConnectionFailed, OnChange, ServerConnection
from toolplug.mcp.server_config import Transport
from toolplug.mcp.server_endpoint import McpServerEndpoint

MISSING = "MCP needs the extra: pip install 'toolplug[mcp]'"

_SDK = "mcp"
_ANSWERING = "toolplug.mcp.sdk.answering"
_CONNECTING = "toolplug.mcp.sdk.client"


def mcp_speaker() -> McpServerEndpoint:
    """What speaks the protocol with clients. Raises `ModuleNotFoundError` without the extra `mcp`."""
    return cast(
        "McpServerEndpoint", _imported(_ANSWERING).SdkSpeaker()
    )  # a module that is imported by name has no types


class Connections:
    """Connects to servers; the SDK is imported when the first connection is made.

    `configured()` gives the configuration that holds now: where requests may go can change while a host runs.
    """

    def __init__(self, configured: Callable[[], Configuration]) -> None:
        self._configured = configured
        self._made: tuple[Egress, Connect] | None = None

    @asynccontextmanager
    async def connect(self, transport: Transport, on_change: OnChange) -> AsyncGenerator[ServerConnection]:
        """Open a connection (`toolplug.mcp.connection.Connect`)."""
        async with (await self._connector())(transport, on_change) as connection:
            yield connection

    async def _connector(self) -> Connect:
        """The SDK's way; the same while `egress` does not change, since it keeps tokens."""
        configuration = self._configured()
        egress = Egress(configuration.settings.egress.allow)
        if self._made is None or self._made[0] != egress:
            try:
                sdk = await asyncio.to_thread(_imported, _CONNECTING)
            except ModuleNotFoundError:
                raise ConnectionFailed(MISSING) from None
            self._made = egress, cast("Connect", sdk.connector(egress, configuration.folder))  # as above: no types
        return self._made[1]


def _imported(name: str) -> ModuleType:
    """A module of ours that uses the SDK, with the SDK as a whole before it.

    Two threads that begin in different parts of it would each wait for the other, and one be given half a module.
    """
    import_module(_SDK)
    return import_module(name)
