"""An MCP server in a process of its own, over pipes, that goes, comes, and changes its list during a conversation."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.host.plain_server import PlainServer
from tests.search.changing_tools import CALLER, Wanted

from toolplug import Host, Principal, ToolCall, open_host
from toolplug.execution.executor import ModelTools
from toolplug.parts.mcp.server_records import ServerRecord

SECTIONS = {
    "toolsets": {"zoo": {"prefix": "zoo", "from": "mcp:zoo"}},
    "agents": {"keeper": {"toolsets": ["zoo"]}},
}
OPERATOR = Principal(subject="root", scopes=frozenset({"admin", "operator"}))
PATIENCE_S = 20.0
LIVE = [f"live_{place}" for place in range(3)]


class ChangingServer:
    """The server, and how a model calls its tools that knows of each change."""

    def __init__(self, server: PlainServer, host: Host) -> None:
        self._server, self._host = server, host
        self._random = random.Random(34)
        self._argument: dict[str, str] = {}

    @property
    def tools(self) -> ModelTools:
        return self._host.executor_for(CALLER, agent="keeper")

    async def listed(self) -> None:
        """Wait until the host knows the tools of the server."""
        await self._until(lambda: self.tools.catalog.find("zoo__feed") is not None)

    async def change(self, turn: int) -> Wanted:
        """Make one change, and return a call of it."""
        if turn % 5 == 3:
            await self._switch(False)
            return Wanted("zoo__feed", {"text": "otter"}, False, "")
        if turn % 5 == 4:
            await self._switch(True)
            return Wanted("zoo__feed", {"text": "otter"}, False, '{"name": "feed", "pid": ')
        name = self._random.choice(LIVE)
        before = self._argument.pop(name, None)
        if before is None or turn % 5 == 2:
            self._argument[name] = "y" if before == "x" else "x"
        list_tools(self._server, self._argument)
        if turn in (0, 5):
            # It says itself that its list has changed. The host hears that at most once a second: else it is asked.
            changed = await self.tools.execute(ToolCall("c", "zoo__feed", {"text": "otter", "changed": True}))
            assert not changed.is_error, changed
        else:
            servers = await self._host.servers.load()
            await servers.discover("zoo", by=OPERATOR, wait_s=PATIENCE_S, request_id="r")
        argument = self._argument.get(name)
        await self._until(lambda: self._argument_of(f"zoo__{name}") == argument)
        if argument is None:
            return Wanted(f"zoo__{name}", {"x": "1"}, False, "")
        return Wanted(f"zoo__{name}", {argument: "1"}, True, f'{{"name": "{name}", "pid": ')

    def _argument_of(self, name: str) -> str | None:
        tool = self.tools.catalog.find(name)
        return None if tool is None else tool.definition.parameters.value["required"][0]  # type: ignore[index]

    async def _switch(self, on: bool) -> None:
        servers = await self._host.servers.load()
        await servers.change(ServerRecord(id="zoo", enabled=on), by=OPERATOR, request_id="r")
        await self._until(lambda: (self.tools.catalog.find("zoo__feed") is not None) == on)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.002)


def list_tools(server: PlainServer, arguments: dict[str, str]) -> None:
    """Have the server list these tools, with the name of their argument, and one that stays."""
    schemas = {
        "feed": {"type": "object", "properties": {"text": {"type": "string"}, "changed": {"type": "boolean"}}},
        **{
            name: {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
                "additionalProperties": False,
            }
            for name, argument in arguments.items()
        },
    }
    listed = [{"name": name, "description": f"Do {name}.", "inputSchema": schema} for name, schema in schemas.items()]
    server.lists_bytes(json.dumps(listed).encode())


@asynccontextmanager
async def open_changing_server(folder: Path) -> AsyncIterator[ChangingServer]:
    """A host with the server."""
    server = PlainServer(folder / "zoo")
    async with open_host({"store": "memory://", **sections_of(server)}, environ={}) as host:
        changing = ChangingServer(server, host)
        await changing.listed()
        yield changing


def sections_of(server: PlainServer) -> dict[str, object]:
    """What a configuration says of the server, whose tools an agent has."""
    list_tools(server, {})
    return {"mcp_servers": {"zoo": server.entry}, **SECTIONS}
