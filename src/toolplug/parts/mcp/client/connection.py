"""The interface of an open connection to a server: its requests, and the notification that a list has changed.

`sdk.client` implements it; it is imported with the SDK when the first connection is opened.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

from toolplug.catalog.call import NO_TRACE_CONTEXT, Ask, Report, UserAnswer, ask_nobody
from toolplug.mcp_extensions import McpExtension
from toolplug.net.egress import Egress
from toolplug.parts.mcp.client.server_config import Transport
from toolplug.parts.mcp.discovery.offers import RawOffers
from toolplug.runtime.threads import import_in_thread

MAX_PAGES = 100
"""A listing that goes on past it is refused."""

MAX_TOOLS = 10_000
"""A listing that has gone past it is read no further."""


class ConnectionFailed(Exception):
    """The server could not be started or reached, does not speak MCP, or has ended. The text contains no secret."""


class CredentialRefused(ConnectionFailed):
    """The server has refused the credential of a request, which it has not run."""


class OpeningRefused(ConnectionFailed):
    """The server has answered the first request of a connection with an error: it is up, and may let others in."""


class ServerRefused(Exception):
    """The server answered with a JSON-RPC error; the text is the server's message, cleaned and cut."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class BadAnswer(Exception):
    """The server answered with a result that does not fit the request."""


class Question(NamedTuple):
    """What a server asks a user: the text, and the JSON Schema of the form."""

    text: str
    schema: Mapping[str, object]


class InputRequired(Exception):
    """A server of 2026-07-28 answers a call when it is repeated with answers to these questions, and with `state`."""

    def __init__(self, questions: Mapping[str, Question], state: str | None) -> None:
        self.questions = questions
        self.state = state
        super().__init__(f"the server asks {len(questions)} questions before it answers")


class Repetition(NamedTuple):
    """What a repeated call carries: the answers to the questions of an `InputRequired`, by key, and its `state`."""

    answers: Mapping[str, UserAnswer]
    state: str | None


_NO_META: Mapping[str, object] = MappingProxyType({})
NO_HEADERS: Mapping[str, str] = MappingProxyType({})

STATELESS = "2026-07-28"
"""From this version of the protocol on, a connection is no session: each request has the headers of its own caller."""


class McpAnswer(NamedTuple):
    """The result of `tools/call`: `content` has the content blocks as JSON objects, `meta` is the result's `_meta`."""

    content: Sequence[Mapping[str, object]]
    structured: object
    is_error: bool
    meta: Mapping[str, object] = _NO_META


class ServerConnection(Protocol):
    """One connection, for any number of concurrent requests. Cancelling a request notifies the server."""

    @property
    def version(self) -> str:
        """The negotiated protocol version."""
        ...

    @property
    def open(self) -> bool:
        """False after the server has ended; pending requests then raise `ConnectionFailed` within a second."""
        ...

    async def tools(self, headers: Mapping[str, str] = NO_HEADERS) -> Sequence[object]:
        """Return the tools of all pages as JSON values, in the server's order; `headers` are those of the caller.

        Raises `ConnectionFailed`, `ServerRefused` and `BadAnswer` (a repeated cursor, too many pages or tools).
        """
        ...

    async def announces_changes(self) -> bool | None:
        """Return whether the server sends `tools/list_changed`; None if that is not known within a second."""
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        report: Report | None,
        trace_context: Mapping[str, str] = NO_TRACE_CONTEXT,
        ask: Ask = ask_nobody,
        repetition: Repetition | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> McpAnswer:
        """Call a tool by the server's own name. `report` receives progress; with None no progress is requested.

        `trace_context` is sent in `_meta`, and over HTTP in headers, as are the `headers` of the caller. `ask` answers
        questions of the server, which is told whether any can be answered. `repetition`: of a call that ended with
        `InputRequired`.

        Raises `ConnectionFailed`, also `CredentialRefused`, `ServerRefused`, `BadAnswer`, `InputRequired`, and
        `CannotAsk` if it asks for something that cannot be passed on.
        """
        ...

    async def offers(self) -> RawOffers:
        """Return prompts, resources and templates of all pages as JSON values, and the instructions.

        A list that the server does not give within its time is empty, and reported. Raises `ConnectionFailed`.
        """
        ...

    async def request(
        self, method: str, params: Mapping[str, object], headers: Mapping[str, str] = NO_HEADERS
    ) -> Mapping[str, object]:
        """Send a request for a prompt, a resource or a completion, with headers of its own; return its result as JSON.

        Raises `ConnectionFailed`, `ServerRefused`, `BadAnswer`, and `CannotAsk` if the server asks something first.
        """
        ...

    async def follow(self, uri: str, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` at each update of a resource, until the returned function is called or the connection ends.

        Raises `ConnectionFailed`, `ServerRefused` and `BadAnswer`.
        """
        ...

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        ...


OnChange = Callable[[], None]
"""Told at once, and never raises, when the server says that one of its lists has changed."""

Connect = Callable[[Transport, OnChange], AbstractAsyncContextManager[ServerConnection]]
"""Opens a connection; entering raises `ConnectionFailed`. Leaving ends the server's process group, within 5 s. Entered
and left by one task."""

Extensions = Callable[[], Sequence[McpExtension]]
"""Returns the extensions of the protocol that the plugins of the host have now."""

MISSING = "MCP needs the extra: pip install 'toolplug[mcp]'"

SDK = "mcp"
_CLIENT = "toolplug.parts.mcp.sdk.client"


class Connections:
    """Opens connections to servers, with `connect`.

    `configured` returns the addresses that are allowed now, which can change while a host runs, and the working
    directory of commands; `extensions` those of the protocol that servers are told of.
    """

    def __init__(self, configured: Callable[[], tuple[Egress, Path]], extensions: Extensions = lambda: ()) -> None:
        self._configured = configured
        self._extensions = extensions
        self._connector: tuple[Egress, Connect] | None = None

    @asynccontextmanager
    async def connect(self, transport: Transport, on_change: OnChange) -> AsyncGenerator[ServerConnection]:
        """Implement `Connect`."""
        async with (await self._sdk_connect())(transport, on_change) as connection:
            yield connection

    async def _sdk_connect(self) -> Connect:
        """Return the SDK's `connect`; the same one while `egress` does not change, since it caches OAuth tokens."""
        egress, folder = self._configured()
        if self._connector is None or self._connector[0] != egress:
            try:
                client = await import_in_thread(_CLIENT, after=SDK)
            except ModuleNotFoundError:
                raise ConnectionFailed(MISSING) from None
            # A module that is imported by name has no types.
            self._connector = egress, cast("Connect", client.connector(egress, folder, extensions=self._extensions))
        return self._connector[1]
