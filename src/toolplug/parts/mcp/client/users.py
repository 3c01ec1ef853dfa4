"""Callers who act as themselves at a server (`user_auth`): their connections, and the lists of users.

A server of protocol 2026-07-28 has no sessions: one connection serves all callers, and each request has the headers of
its own caller. With an older one a connection is a session of the server's, so each user has one, which ends when idle.

Where the operator's `headers` or `oauth` list the server, that list is for all. Until then a user is shown one tool,
`sign_in`: its call ends with the link to sign in, and with a token it lists the server for this user. Each user is
shown its own list from then on, and no other one. What is kept is bounded, in the memory of one process: a user whose
list was dropped is shown `sign_in` again, which gives no link to one who is connected. So is one who comes to another
process: the store need not have lists, which a server can give at any time.

A server that announces another list is listed again: for the user of that connection, or, over one that serves all
users, for all who have a list.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar, cast

from toolplug.catalog.call import CREDENTIAL_NEEDED, CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition, ToolHints
from toolplug.catalog.plan import Gate, ShownGate, Tool
from toolplug.catalog.text import pluralize
from toolplug.errors import StoreError, ToolUnavailable
from toolplug.execution.plans import CallServices, own_tool
from toolplug.execution.user_auth import AuthOwner, HostCredentials, UserAuth
from toolplug.host.file.tool_servers import SERVER_KIND
from toolplug.parts.mcp.client.connection import (
    STATELESS,
    BadAnswer,
    Connect,
    ConnectionFailed,
    CredentialRefused,
    ServerConnection,
    ServerRefused,
)
from toolplug.parts.mcp.client.connection_strategies import (
    AskOver,
    BackgroundCloses,
    ConnectionStrategy,
    PersistentConnection,
    Restarts,
    ServerDown,
    SwitchedConnection,
)
from toolplug.parts.mcp.client.plans import Labels, OwnTarget, refusals_in_words
from toolplug.parts.mcp.client.server_config import Endpoint, Server
from toolplug.parts.mcp.discovery.listing import ListReader
from toolplug.parts.mcp.discovery.record import DiscoveryRecord, FoundTool, ListingFailed, ServerState

SIGN_IN = "sign_in"
MAX_LISTS = 1_000
MAX_KEPT_TOOLS = 100_000
"""Users of one server with a list, and the entries of their lists together, at a hundred bytes each; the list that was
used least recently goes. Tools that are equal in several lists are one object."""
RELISTS_AT_ONCE = 4
RELIST_PAUSE_S = 1.0
"""A server that announces changes without end is listed for its users over so many requests at once, and then not again
for this time, as the list of the operator is."""
TIMEOUT_S = 60.0
_MAX_RESULT_BYTES = 65_536
_SHOWN = 50

User = tuple[str, str]
"""Tenant and subject."""


class _UserList(NamedTuple):
    who: Principal
    tools: Mapping[str, FoundTool]


class UserLists:
    """The lists of the users of one server: `keep` bounds them, and `union` has each tool name once.

    Two users with different definitions under one name are rare: the server is the same. The first definition is in the
    catalog, and who has another one is not shown the tool.
    """

    def __init__(self, server: str) -> None:
        self._reader = ListReader(server)
        self._lists: OrderedDict[User, _UserList] = OrderedDict()
        self._kept = 0

    async def read(self, raw: Sequence[object]) -> Sequence[FoundTool]:
        """Return the tools of a list as it was sent, sanitised."""
        known = ServerState(record=DiscoveryRecord(tools=tuple(self.union())))
        return (await self._reader.read(raw, known)).tools

    def keep(self, who: Principal, tools: Sequence[FoundTool]) -> None:
        self._drop(user_of(who))
        self._lists[user_of(who)] = made = _UserList(who, {tool.name: tool for tool in tools})
        self._kept += len(made.tools)
        while len(self._lists) > MAX_LISTS or (self._kept > MAX_KEPT_TOOLS and len(self._lists) > 1):
            self._drop(next(iter(self._lists)))

    def forget(self) -> None:
        self._lists.clear()
        self._kept = 0

    def has_list(self, who: Principal) -> bool:
        """Return whether there is a list of this user, which is used by that."""
        if user_of(who) not in self._lists:
            return False
        self._lists.move_to_end(user_of(who))
        return True

    def users(self, user: User | None = None) -> Sequence[Principal]:
        """Return who has a list, or this user if it has one."""
        found = list(self._lists.values()) if user is None else [self._lists[user]] if user in self._lists else []
        return [each.who for each in found]

    def replace(self, who: Principal, tools: Sequence[FoundTool]) -> bool:
        """Keep another list of a user that still has one, and return whether it differs from that."""
        known, new = self._lists.get(user_of(who)), {tool.name: tool for tool in tools}
        if known is None or known.tools == new:
            return False
        self.keep(who, tools)
        return True

    def lists(self, who: Principal, name: str, digest: str) -> bool:
        """Return whether the list of this user has the tool of this name in this definition."""
        known = self._lists.get(user_of(who))
        found = None if known is None else known.tools.get(name)
        return found is not None and found.definition.ref.digest == digest

    def gate(self, definition: ToolDefinition, origin: str) -> Gate:
        """Return the gate that shows a tool to the users whose own list has it."""
        ref = definition.ref
        shows = partial(self.lists, name=ref.name, digest=ref.digest)
        return ShownGate(shows, "it is not in the list that the server gives this user", origin)

    def sign_in_gate(self, origin: str) -> Gate:
        """Return the gate that shows `sign_in` to the users without a list."""
        return ShownGate(self._lacks_list, "the server has listed its tools to this user", origin)

    def union(self) -> Sequence[FoundTool]:
        """Return the tools of all lists, the first one of each name."""
        found: dict[str, FoundTool] = {}
        for each in self._lists.values():
            for name, tool in each.tools.items():
                found.setdefault(name, tool)
        return [tool for name, tool in found.items() if name != SIGN_IN]

    def _lacks_list(self, who: Principal) -> bool:
        return not self.has_list(who)

    def _drop(self, user: User) -> None:
        gone = self._lists.pop(user, None)
        self._kept -= 0 if gone is None else len(gone.tools)


class ListUpdates:
    """Lists a server again for the users whose list it says has changed, a few at once, in rounds.

    `reach` returns the way to the server, None for one that is disabled. `listed` is called after a round that has
    changed a list.
    """

    def __init__(
        self,
        lists: UserLists,
        reach: Callable[[], SwitchedConnection | None],
        listed: Callable[[], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._lists = lists
        self._reach = reach
        self._listed = listed
        self._pause = pause
        self._due: dict[User, Principal] = {}
        self._rounds: asyncio.Task[None] | None = None

    def due(self, user: User | None) -> None:
        """Have the list of this user, or of all users, read again."""
        self._due.update({user_of(who): who for who in self._lists.users(user)})
        if self._due and (self._rounds is None or self._rounds.done()):
            self._rounds = asyncio.create_task(self._run(), name="toolplug-mcp-user-lists")

    async def aclose(self) -> None:
        """Read no more lists."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.wait([self._rounds])

    async def _run(self) -> None:
        places = asyncio.Semaphore(RELISTS_AT_ONCE)
        while self._due:
            users, self._due = [*self._due.values()], {}
            if any(await asyncio.gather(*(self._update(who, places) for who in users))):
                self._listed()
            await self._pause(RELIST_PAUSE_S)

    async def _update(self, who: Principal, places: asyncio.Semaphore) -> bool:
        reach = self._reach()
        if reach is None:
            return False
        async with places:
            try:
                # The token is that of the store: this is no request of the user's.
                tools = await self._lists.read(await reach.ask_as(CallContext(who), list_over))
            except (ToolUnavailable, StoreError, ConnectionFailed, ServerRefused, BadAnswer, ListingFailed):
                return False  # without a token, or the server is down: the list stays until it can be read
        return self._lists.replace(who, tools)


def user_of(who: Principal) -> User:
    return who.tenant, who.subject


class SignInTarget(OwnTarget):
    """Lists the server for the caller; `listed` is called after that. Raises as `SwitchedConnection.ask_as`."""

    def __init__(self, reach: SwitchedConnection, lists: UserLists, listed: Callable[[], None]) -> None:
        self._reach = reach
        self._lists = lists
        self._listed = listed

    async def __call__(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Answer the names of the tools."""
        with refusals_in_words():
            raw = await self._reach.ask_as(context, list_over)
        tools = await self._lists.read(raw)
        self._lists.keep(context.principal, tools)
        self._listed()
        names = ", ".join(tool.name for tool in tools[:_SHOWN])
        more = ", …" if len(tools) > _SHOWN else ""
        return ToolResult(output=f"The user is signed in. Listed now, {pluralize(len(tools), 'tool')}: {names}{more}")


def list_over(line: ConnectionStrategy, headers: Mapping[str, str]) -> Awaitable[Sequence[object]]:
    """Return the list of the server as it sends it, to whom these headers are of."""
    return line.ask(lambda connection: connection.tools(headers))


def sign_in_tool(
    services: CallServices, labels: Labels, server: str, target: SignInTarget, gates: tuple[Gate, ...]
) -> Tool:
    """Return the tool that a user without a list is shown."""
    definition = ToolDefinition(
        name=SIGN_IN,
        description="Sign the user in, or list the tools of this server for a user who is signed in.",
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        hints=ToolHints(read_only=True, idempotent=True, destructive=False),
    ).owned_by(SERVER_KIND, server)
    tool = own_tool(services, definition, target, timeout_s=TIMEOUT_S, max_result_bytes=_MAX_RESULT_BYTES)
    return tool._replace(plan=replace(tool.plan, gates=gates, counters=labels.method(SIGN_IN)))


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
