"""The lists of users, of a server that lists its tools to nobody but a user with a token of its own.

Where the operator's `headers` or `oauth` list the server, that list is for all. Until then a user is shown one tool,
`sign_in`: its call ends with the link to sign in, and with a token it lists the server for this user. Each user is
shown its own list from then on, and no other one. What is kept is bounded, in the memory of one process: a user whose
list was dropped is shown `sign_in` again, which gives no link to one who is connected.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition, ToolHints
from toolplug.catalog.gates import Gate, ShownGate
from toolplug.catalog.plan import Tool
from toolplug.catalog.text import pluralize
from toolplug.execution.plans import CallServices, own_tool
from toolplug.host.file.tool_servers import KIND
from toolplug.parts.mcp.client.connection_strategies import ConnectionStrategy, SwitchedConnection
from toolplug.parts.mcp.client.plans import Labels, OwnTarget, refusals_in_words
from toolplug.parts.mcp.discovery.listing import ListReader
from toolplug.parts.mcp.discovery.record import DiscoveryRecord, FoundTool, ServerState

SIGN_IN = "sign_in"
MAX_LISTS = 1_000
MAX_KEPT_TOOLS = 100_000
"""Users of one server with a list, and the entries of their lists together, at a hundred bytes each; the list that was
used least recently goes. Tools that are equal in several lists are one object."""
TIMEOUT_S = 60.0
_MAX_RESULT_BYTES = 65_536
_SHOWN = 50

_User = tuple[str, str]


class UserLists:
    """The lists of the users of one server: `keep` bounds them, and `union` has each tool name once.

    Two users with different definitions under one name are rare: the server is the same. The first definition is in the
    catalog, and who has another one is not shown the tool.
    """

    def __init__(self, server: str) -> None:
        self._reader = ListReader(server)
        self._lists: OrderedDict[_User, Mapping[str, FoundTool]] = OrderedDict()
        self._kept = 0

    async def read(self, raw: Sequence[object]) -> Sequence[FoundTool]:
        """Return the tools of a list as it was sent, sanitised."""
        known = ServerState(record=DiscoveryRecord(tools=tuple(self.union())))
        return (await self._reader.read(raw, known)).tools

    def keep(self, who: Principal, tools: Sequence[FoundTool]) -> None:
        """Keep the list of this user."""
        self._drop(_user(who))
        self._lists[_user(who)] = {tool.name: tool for tool in tools}
        self._kept += len(tools)
        while len(self._lists) > MAX_LISTS or (self._kept > MAX_KEPT_TOOLS and len(self._lists) > 1):
            self._drop(next(iter(self._lists)))

    def forget(self) -> None:
        """Forget all lists."""
        self._lists.clear()
        self._kept = 0

    def has_list(self, who: Principal) -> bool:
        """Return whether there is a list of this user."""
        return _user(who) in self._lists

    def lists(self, who: Principal, name: str, digest: str) -> bool:
        """Return whether the list of this user has the tool of this name in this definition."""
        found = self._lists.get(_user(who), {}).get(name)
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
        for tools in self._lists.values():
            for name, tool in tools.items():
                found.setdefault(name, tool)
        return [tool for name, tool in found.items() if name != SIGN_IN]

    def _lacks_list(self, who: Principal) -> bool:
        return not self.has_list(who)

    def _drop(self, user: _User) -> None:
        self._kept -= len(self._lists.pop(user, ()))


def _user(who: Principal) -> _User:
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
            raw = await self._reach.ask_as(context, _list_over)
        tools = await self._lists.read(raw)
        self._lists.keep(context.principal, tools)
        self._listed()
        names = ", ".join(tool.name for tool in tools[:_SHOWN])
        more = ", …" if len(tools) > _SHOWN else ""
        return ToolResult(output=f"The user is signed in. Listed now, {pluralize(len(tools), 'tool')}: {names}{more}")


def _list_over(line: ConnectionStrategy, headers: Mapping[str, str]) -> Awaitable[Sequence[object]]:
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
    ).owned_by(KIND, server)
    tool = own_tool(services, definition, target, timeout_s=TIMEOUT_S, max_result_bytes=_MAX_RESULT_BYTES)
    return tool._replace(plan=replace(tool.plan, gates=gates, counters=labels.method(SIGN_IN)))
