"""An open connection to a server, as the rest of the package needs it: two requests, and three pieces of news.

`sdk.client` makes them, and is imported with the SDK when the first connection is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import NamedTuple, Protocol, cast

from toolplug.catalog.call import Report
from toolplug.execution.egress import Egress
from toolplug.mcp.server_config import Transport

MAX_PAGES = 100
"""A listing that goes on past it is refused."""

MAX_TOOLS = 10_000
"""A listing that has gone past it is read no further."""


class ConnectionFailed(Exception):
    """The server could not be started or reached, does not speak the protocol, or has gone; no secret in the text."""


class ServerRefused(Exception):
    """The server answered a request with an error of the protocol; the text is the server's, cut and cleaned."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class BadAnswer(Exception):
    """The server answered with something that is no answer to what it was asked."""


_NO_META: Mapping[str, object] = MappingProxyType({})


class Answer(NamedTuple):
    """The result of `tools/call`. `content` are blocks of the protocol as JSON objects, `meta` its `_meta`."""

    content: Sequence[Mapping[str, object]]
    structured: object
    is_error: bool
    meta: Mapping[str, object] = _NO_META


class ServerConnection(Protocol):
    """One connection; any number of requests at once. Cancelling a request tells the server so, in both eras."""

    @property
    def version(self) -> str:
        """The version of the protocol that both speak."""
        ...

    @property
    def open(self) -> bool:
        """False once the server has gone; then every request that waits raises `ConnectionFailed` within a second."""
        ...

    async def tools(self) -> Sequence[object]:
        """The tools of every page, as JSON values, in the server's order.

        Raises `ConnectionFailed`, `ServerRefused` and `BadAnswer` (a cursor that comes again, too many pages or tools).
        """
        ...

    async def announces_changes(self) -> bool | None:
        """Whether the server says when its list changes, after a second at most; None where that is not known yet."""
        ...

    async def call(self, name: str, arguments: Mapping[str, object], report: Report | None) -> Answer:
        """Run a tool by the server's own name for it. `report` hears of progress, None: the server is asked for none.

        Raises `ConnectionFailed`, `ServerRefused` and `BadAnswer`.
        """
        ...

    async def gone(self) -> None:
        """Wait until the connection has ended."""
        ...


OnChange = Callable[[], None]
"""Told at once, and never raises, when the server says that its list of tools has changed."""

Connect = Callable[[Transport, OnChange], AbstractAsyncContextManager[ServerConnection]]
"""Opens a connection; entering raises `ConnectionFailed`. Leaving ends the server's process group, within 5 s. Entered
and left by one task."""

MISSING = "MCP needs the extra: pip install 'toolplug[mcp]'"

_SDK = "mcp"
_CLIENT = "toolplug.mcp.sdk.client"


class Connections:
    """Connects to servers, by `connect`.

    `configured` returns which addresses are allowed now, which can change while a host runs, and the folder in which
    commands start.
    """

    def __init__(self, configured: Callable[[], tuple[Egress, Path]]) -> None:
        self._configured = configured
        self._connector: tuple[Egress, Connect] | None = None

    @asynccontextmanager
    async def connect(self, transport: Transport, on_change: OnChange) -> AsyncGenerator[ServerConnection]:
        """Implement `Connect`."""
        async with (await self._sdk_connect())(transport, on_change) as connection:
            yield connection

    async def _sdk_connect(self) -> Connect:
        """The SDK's implementation; the same while `egress` does not change, since it keeps tokens."""
        egress, folder = self._configured()
        if self._connector is None or self._connector[0] != egress:
            try:
                client = await asyncio.to_thread(import_with_sdk, _CLIENT)
            except ModuleNotFoundError:
                raise ConnectionFailed(MISSING) from None
            # A module that is imported by name has no types.
            self._connector = egress, cast("Connect", client.connector(egress, folder))
        return self._connector[1]


def import_with_sdk(name: str) -> ModuleType:
    """Import a module of toolplug that uses the SDK, after the whole SDK.

    Two threads that began to import different parts of it would each wait for the other, and one would get a module
    that is not complete. Raises `ModuleNotFoundError` without the extra `mcp`.
    """
    import_module(_SDK)
    return import_module(name)
