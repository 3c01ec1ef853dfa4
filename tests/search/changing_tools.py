"""Tools that change once a turn, and the check of what a model's API was sent over a conversation with them."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from toolplug import CallContext, FunctionProvider, Host, Principal, ToolCall, ToolDefinition, open_host
from toolplug.execution.executor import ModelTools

CALLER = Principal(subject="ada", scopes=frozenset({"tools:call"}))
OPERATOR = Principal(subject="root", scopes=frozenset({"admin"}))
LIVE, BASE = 8, 30
CACHED = 0.1
"""The usual price of cached input, against what is read anew."""


class Fixed(FunctionProvider):
    """A provider of these tools, which take one argument of this name."""

    def __init__(self, names: Sequence[str], argument: str = "x") -> None:
        super().__init__()
        self.names, self.argument = names, argument

    def tools(self) -> list[ToolDefinition]:
        parameters = {
            "type": "object",
            "properties": {self.argument: {"type": "string", "description": "what to do it with"}},
            "required": [self.argument],
            "additionalProperties": False,
        }
        about = "Does the thing that {} is for, in the usual way"
        return [ToolDefinition(name=each, description=about.format(each), parameters=parameters) for each in self.names]

    async def execute(self, call: ToolCall, context: CallContext) -> str:
        return f"{call.name} {self.argument}={dict(call.arguments)[self.argument]}"  # type: ignore[arg-type]


class Wanted(NamedTuple):
    """A call that a model makes, and what its answer has to begin with."""

    name: str
    arguments: dict[str, object]
    through: bool
    answer: str

    @property
    def sent(self) -> tuple[str, dict[str, object]]:
        """The name and arguments that the model sends."""
        return ("call_tool", {"name": self.name, "arguments": self.arguments}) if self.through else self[:2]


class Changing:
    """A host's tools, of which one comes, goes or has another schema at each turn; a server of three comes and goes."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._random = random.Random(34)
        self._running = {f"live_{place}": place % 2 == 0 for place in range(LIVE)}
        self._argument = dict.fromkeys(self._running, "x")
        self._server = True

    @property
    def tools(self) -> ModelTools:
        return self.host.executor_for(CALLER)

    async def change(self, turn: int) -> list[Wanted]:
        """Make one change, and return what a model calls that knows of it."""
        if turn % 5 == 4:
            self._server = not self._server
            await self._switch("server", self._server)
            return [self._of_server()]
        name = f"live_{self._random.randrange(LIVE)}"
        if turn % 5 == 2 and self._running[name]:
            before = self._argument[name]
            self._argument[name] = "y" if before == "x" else "x"
            await self._switch(f"{name}_{before}", False)
            await self._switch(f"{name}_{self._argument[name]}", True)
            refused = Wanted(name, {before: "1"}, False, f"/{self._argument[name]}: ")
            return [refused._replace(answer=""), self._of(name)]
        self._running[name] = not self._running[name]
        await self._switch(f"{name}_{self._argument[name]}", self._running[name])
        return [self._of(name)]

    def _of(self, name: str) -> Wanted:
        argument = self._argument[name]
        if not self._running[name]:
            return Wanted(name, {argument: "1"}, False, f'no builtin provider handles tool "{name}"')
        return Wanted(name, {argument: "1"}, True, f"{name} {argument}=1")

    def _of_server(self) -> Wanted:
        if not self._server:
            return Wanted("server_1", {"x": "1"}, False, 'no builtin provider handles tool "server_1"')
        return Wanted("server_1", {"x": "1"}, False, "server_1 x=1")

    async def _switch(self, key: str, on: bool) -> None:
        await (self.host.enable if on else self.host.disable)(key, by=OPERATOR)


@asynccontextmanager
async def open_changing() -> AsyncIterator[Changing]:
    """A host with tools that change."""
    providers = {"base": Fixed([f"base_{place}" for place in range(BASE)]), "server": Fixed(["server_0", "server_1"])}
    for place in range(LIVE):
        for argument in "xy":
            providers[f"live_{place}_{argument}"] = Fixed([f"live_{place}"], argument)
    entries = {key: {"enabled": not key.startswith("live_")} for key in providers}
    for place in range(0, LIVE, 2):
        entries[f"live_{place}_x"] = {"enabled": True}
    async with open_host({"store": "memory://"}, providers=providers, environ={}) as host:
        for key, entry in entries.items():
            if not entry["enabled"]:
                await host.disable(key, by=OPERATOR)
        yield Changing(host)


class SentBytes:
    """What a model's API was sent, request by request: first the tools, then the messages."""

    def __init__(self) -> None:
        self._heads: list[bytes] = []
        self._bodies: list[bytes] = []

    def add(self, tools: object, messages: Sequence[object]) -> None:
        """Note one request."""
        self._heads.append(json.dumps(tools).encode())
        # Without the bracket that ends the list, so that a longer list of messages begins with a shorter one.
        self._bodies.append(self._heads[-1] + json.dumps(messages).encode()[:-1])

    @property
    def requests(self) -> int:
        return len(self._bodies)

    @property
    def changed_prefixes(self) -> int:
        """How often a request does not begin with the whole one before."""
        pairs = zip(self._bodies, self._bodies[1:], strict=False)
        return sum(not later.startswith(earlier) for earlier, later in pairs)

    @property
    def cost(self) -> float:
        """The cost of the input in bytes, of which those of the common beginning with the request before are cached."""
        cost = float(len(self._bodies[0]))
        for earlier, later in zip(self._bodies, self._bodies[1:], strict=False):
            cached = common_bytes(earlier, later)
            cost += len(later) - cached + CACHED * cached
        return cost


def common_bytes(first: bytes, second: bytes) -> int:
    """Return how many bytes two texts begin with in common."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


def of_today(changing: Changing) -> Sequence[Mapping[str, Any]]:
    """Return the list that is made anew for each request."""
    return changing.tools.for_openai()
