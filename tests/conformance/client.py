"""The client that the conformance suite starts for each scenario: it lists a server's tools and calls each.

`python client.py URL`; what the scenario gives a client to know stands in the environment. A tool is what discovery
leaves of it, so that the suite sees also what our own reading does to a definition.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from toolplug.catalog.call import CannotAsk, UserAnswer
from toolplug.catalog.definition import ToolDefinition, ToolRef
from toolplug.host.file.tool_servers import SERVER_KIND
from toolplug.net.egress import Egress
from toolplug.parts.mcp.client.connection import BadAnswer, McpAnswer, Repetition, ServerConnection, ServerRefused
from toolplug.parts.mcp.client.server_config import ClientCredentials, Endpoint
from toolplug.parts.mcp.discovery.listing import read_tool
from toolplug.parts.mcp.input_rounds import answered_in_rounds
from toolplug.parts.mcp.sdk.client import connector

EXAMPLES: Mapping[str, object] = {
    "number": 5,
    "integer": 3,
    "string": "text",
    "boolean": True,
    "array": [],
    "object": {},
}

Call = tuple[str, dict[str, object]]


async def main(url: str, known: Mapping[str, Any]) -> None:
    """Connect, list, and make each call at once; what a server refuses or answers badly ends that call only."""
    endpoint = Endpoint(url=url, oauth=credentials(known), trusted=True)
    egress = Egress(("loopback",))  # where the scenario's authorization server is
    listening = Listening()
    async with connector(egress, Path())(endpoint, lambda: None) as connection:
        if os.environ["MCP_CONFORMANCE_SCENARIO"] == "sse-retry":
            await listening.opened()
        tools = [read_tool(raw, "peer").definition for raw in await connection.tools()]
        await asyncio.gather(*(made(connection, *call) for call in calls(tools, known)))


class Listening(logging.Handler):
    """Waits for the stream on which a server sends by itself; the SDK opens it in a task and only logs that it did.

    The scenario `sse-retry` takes any GET after a call for the reconnection, so this one has to come before.
    """

    _OPEN = "GET SSE connection established"
    _WAIT_S = 30

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._opened = asyncio.Event()
        logger = logging.getLogger("mcp.client.streamable_http")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self._OPEN:
            self._opened.set()

    async def opened(self) -> None:
        """Return when the stream is open; a timeout means that the SDK logs another text now."""
        await asyncio.wait_for(self._opened.wait(), self._WAIT_S)


def credentials(known: Mapping[str, Any]) -> ClientCredentials | None:
    """Those that the scenario has handed out beforehand; made-up ones where it waits for a user who consents."""
    if "client_secret" in known:
        return ClientCredentials(client_id=known["client_id"], client_secret=known["client_secret"])
    if os.environ["MCP_CONFORMANCE_SCENARIO"].startswith("auth/"):
        return ClientCredentials(client_id="toolplug", client_secret="made up")
    return None


def calls(tools: Sequence[ToolDefinition], known: Mapping[str, Any]) -> Iterator[Call]:
    """The calls that the scenario names, or one of each tool; who wants a schema gets that of the first tool."""
    if "toolCalls" in known:
        yield from ((call["name"], call["arguments"]) for call in known["toolCalls"])
        return
    for tool in tools:
        wanted: Any = tool.parameters.value
        arguments = {name: _example(wanted["properties"][name]) for name in wanted.get("required", ())}
        if "schema" in wanted.get("properties", {}):
            arguments["schema"] = tools[0].parameters.value
        yield tool.name, arguments


def _example(schema: Mapping[str, Any]) -> object:
    return EXAMPLES[schema.get("type", "string")]


async def made(connection: ServerConnection, name: str, arguments: Mapping[str, object]) -> None:
    """One call with what its server asks, and what came of it."""

    async def send(repetition: Repetition | None) -> McpAnswer:
        return await connection.call(name, arguments, None, ask=answered, repetition=repetition)

    try:
        print(name, await answered_in_rounds(send, answered, ToolRef(SERVER_KIND, "peer", name, ""), arguments))
    except (ServerRefused, BadAnswer, CannotAsk) as error:
        print(name, repr(error))


async def answered(question: str, schema: Mapping[str, object]) -> UserAnswer:
    """A user who accepts each form as it is filled in."""
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", schema.get("properties", {}))
    return UserAnswer("accept", {name: field["default"] for name, field in fields.items() if "default" in field})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))))
