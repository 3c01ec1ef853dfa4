"""An MCP client of 2026-07-28 that declares tasks, request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

TASKS = "io.modelcontextprotocol/tasks"
VERSION = "2026-07-28"
FORMS = {"elicitation": {"form": {}}}


class McpCaller:
    """An MCP client of 2026-07-28, request by request; `declares` are its capabilities."""

    def __init__(self, client: Any, **declares: object) -> None:
        self.client = client
        self.capabilities = declares

    async def send(self, method: str, headers: Mapping[str, str] = MappingProxyType({}), **params: object) -> Any:
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        name = {"Mcp-Name": str(params["name"])} if method == "tools/call" else {}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        given = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method, **name, **headers}
        answer = await self.client.post("/mcp", json=body, headers=given)
        whole = answer.json()
        return whole["result"] if "result" in whole else whole["error"]

    async def call(self, name: str, **arguments: object) -> Any:
        return await self.send("tools/call", name=name, arguments=arguments)

    async def task(self, task_id: str) -> Any:
        return await self.send("tasks/get", taskId=task_id)

    async def ended(self, task_id: str, *, until: Callable[[Any], bool] | None = None) -> Any:
        """The task once it has ended, or is as `until` wants it."""
        while True:
            task = await self.task(task_id)
            if (until or (lambda each: each.get("status") not in ("working", "input_required")))(task):
                return task
            await asyncio.sleep(0.02)


def with_tasks(client: Any, **more: object) -> McpCaller:
    """A caller that declares tasks, over this client of HTTP."""
    return McpCaller(client, extensions={TASKS: {}}, **more)
