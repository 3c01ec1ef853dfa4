"""An open connection to a server, as the rest of the package needs it: two requests, and three pieces of news.

`sdk.connecting` makes them; nothing else on this side imports the SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from toolplug.catalog.call import Report
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


class Answer(NamedTuple):
    """The result of `tools/call`. `content` are blocks of the protocol as JSON objects."""

    content: Sequence[Mapping[str, object]]
    structured: object
    is_error: bool


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
