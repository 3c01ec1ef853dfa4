"""Connections to a server whose callers act as themselves (`user_auth`).

A server of protocol 2026-07-28 has no sessions: one connection serves all callers, and each request has the headers of
its own caller. With an older one a connection is a session of the server's, so each user has one, which ends when idle.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from toolplug.catalog.call import CREDENTIAL_NEEDED, CallContext
from toolplug.errors import ToolUnavailable
from toolplug.execution.user_auth import AuthOwner, HostCredentials, UserAuth
from toolplug.host.file.tool_servers import SERVER_KIND
from toolplug.parts.mcp.client.connection import STATELESS, Connect, CredentialRefused, ServerConnection
from toolplug.parts.mcp.client.connection_strategies import (
    AskOver,
    BackgroundCloses,
    ConnectionStrategy,
    PersistentConnection,
    Restarts,
    ServerDown,
)
from toolplug.parts.mcp.client.server_config import Endpoint, Server
from toolplug.parts.mcp.client.user_lists import User

T = TypeVar("T")

IDLE_S = 300.0
"""How long the connection of one user is kept after its last request."""
MAX_USERS = 1_000
"""Users of one server with a connection of their own: each is a socket or two, and a session at the server."""
_TRIES = 3
"""Credentials of one call: the one at hand, a renewed one, and what the part says to a refusal of that one."""

_Key = tuple[str, str, str]


@dataclass(slots=True, eq=False)
class _UserLine:
    """One connection, the headers that it was opened with, how many requests go over it, and the timer of its end."""

    link: PersistentConnection
    headers: Mapping[str, str]
    running: int = 0
    timer: asyncio.TimerHandle | None = None


class UserConnections(ConnectionStrategy):
    """The connections of all users of one server.

    `on_change` is called when one of them is told of another list, with its user, or with None where it serves all.
    """

    def __init__(
        self,
        server: Server,
        connect: Connect,
        credentials: HostCredentials,
        endings: BackgroundCloses,
        on_change: Callable[[User | None], None],
        *,
        idle_s: float = IDLE_S,
    ) -> None:
        self._server = server
        self._endpoint = cast("Endpoint", server.transport)
        self._auth = cast("UserAuth", self._endpoint.user_auth)
        self._owner = AuthOwner(SERVER_KIND, server.id, self._endpoint.url)
        self._connect = connect
        self._credentials = credentials
        self._endings = endings
        self._on_change = on_change
        self._idle_s = idle_s
        self._restarts = Restarts()
        self._shared: _UserLine | None = None
        self._own: dict[_Key, _UserLine] = {}
        self._first = asyncio.Lock()
        self._closed = False

    async def ask(self, request: Callable[[ServerConnection], Awaitable[T]]) -> T:
        """Raise `ToolUnavailable`: this is a request of nobody, such as to follow a resource."""
        reason = f"callers of its server {self._server.id!r} act as themselves, and this request is of none"
        raise ToolUnavailable(reason, code=CREDENTIAL_NEEDED)

    async def ask_as(self, context: CallContext, ask: AskOver[T]) -> T:
        """Make a request as this caller, again with another credential if the server refuses the first.

        Raises what `ask` raises, and `ToolUnavailable`.
        """
        refused = ""
        for _ in range(_TRIES):
            text = await self._credentials.credential(self._owner, self._auth, context, refused)
            headers = self._auth.headers(text)
            try:
                line = await self._line(self._key(context, text), headers)
                return await self._ask_over(line, headers, ask)
            except CredentialRefused:
                refused = text
        reason = f"its server {self._server.id!r} refuses every credential of its caller"
        raise ToolUnavailable(reason, code=CREDENTIAL_NEEDED)

    async def aclose(self) -> None:
        self._closed = True
        lines = [*self._own.values(), *([] if self._shared is None else [self._shared])]
        self._own, self._shared = {}, None
        for line in lines:
            if line.timer is not None:
                line.timer.cancel()
        await asyncio.gather(*(line.link.aclose() for line in lines))

    async def _ask_over(self, line: _UserLine, headers: Mapping[str, str], ask: AskOver[T]) -> T:
        line.running += 1
        try:
            return await ask(line.link, headers)
        finally:
            line.running -= 1
            self._end_when_idle(line)

    def _key(self, context: CallContext, text: str) -> _Key:
        """Return whose connection it is; what a caller brings itself may be of another person at each call."""
        caller = context.principal
        brought = hashlib.sha256(text.encode()).hexdigest() if self._auth.given_name else ""
        return (caller.tenant, caller.subject, brought)

    async def _line(self, key: _Key, headers: Mapping[str, str]) -> _UserLine:
        """Return the connection for this user. Raises `ServerDown` and `CredentialRefused`."""
        if (line := self._open_line(key, headers)) is not None:
            return line
        # One at a time until the server has said its version: a thousand first callers need one connection.
        async with self._first:
            if (line := self._open_line(key, headers)) is not None:
                return line
            line = self._make(key, headers)
            try:
                connection = await line.link.ensure_open()
            except BaseException:
                self._end(line)
                raise
            if self._closed:
                self._end(line)
                raise ServerDown(self._server.id)
            if connection.version >= STATELESS:
                self._shared = line
            else:
                self._own[key] = line
            return line

    def _open_line(self, key: _Key, headers: Mapping[str, str]) -> _UserLine | None:
        """Return a connection that need not be the first; None where the server's version is not known."""
        shared = self._shared
        if shared is not None:
            if shared.link.connection is not None:
                return shared
            # Not opened again: it would be with the credential of another user.
            self._shared = None
            self._end(shared)
        if not self._own:
            return None
        line = self._own.pop(key, None)
        if line is not None and line.link.connection is None and line.headers != headers:
            self._end(line)
            line = None
        if line is None:
            self._make_room()
            line = self._make(key, headers)
        self._own[key] = line  # the last one used is the last to go
        return line

    def _make(self, key: _Key, headers: Mapping[str, str]) -> _UserLine:
        def tell() -> None:
            self._on_change(None if self._shared is line else key[:2])

        # What a caller brings is for its calls: its list is that of the operator.
        listens = not self._auth.given_name
        own = replace(self._endpoint, headers=headers, oauth=None, user_auth=None, of_user=True, listens=listens)
        server = replace(self._server, transport=own)
        line = _UserLine(PersistentConnection(server, self._connect, tell, restarts=self._restarts), headers)
        return line

    def _make_room(self) -> None:
        if len(self._own) < MAX_USERS:
            return
        idle = next((key for key, line in self._own.items() if not line.running), None)
        if idle is None:
            raise ServerDown(self._server.id, retry_after_s=1.0)
        self._end(self._own.pop(idle))

    def _end_when_idle(self, line: _UserLine) -> None:
        if line.timer is not None:
            line.timer.cancel()
        if not line.running and line is not self._shared and not self._closed:
            line.timer = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle, line)

    def _end_idle(self, line: _UserLine) -> None:
        if not line.running:
            self._own = {key: each for key, each in self._own.items() if each is not line}
            self._end(line)

    def _end(self, line: _UserLine) -> None:
        self._endings.begin(line.link.aclose())
