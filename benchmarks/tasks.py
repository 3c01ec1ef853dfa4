"""Polling a task, beside listing tools: the host's application is called without a server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.application import Application
from benchmarks.frame import Batch, Row
from toolplug import open_host
from toolplug.http import create_app

KEY = "benchmark-key-of-a-caller-with-a-task"
_TOOL = """
import asyncio
from toolplug import tool

@tool
async def last() -> str:
    "Go on for an hour."
    await asyncio.sleep(3600)
    return "an hour"
"""
_VERSION = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


@asynccontextmanager
async def asked(what: str) -> AsyncGenerator[Batch]:
    """Read a task that runs over HTTP (`task`) or on `/mcp`, or list the tools, over HTTP (`tools`) or on `/mcp`."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tools.py").write_text(_TOOL, "utf-8")
        file = Path(folder) / "providers.yaml"
        key = {"key": KEY, "subject": "ann", "scopes": ["tools:read", "tools:call"]}
        own = {"own": {"type": "./tools.py", "enabled": True}}
        whole = {"tasks": {}, "auth": {"api_keys": [key]}, "providers": own}
        file.write_text(json.dumps(whole), "utf-8")
        host = open_host(file, environ={})
        async with host:
            app = Application(create_app(host), {"authorization": f"Bearer {KEY}"})
            call = json.dumps({"name": "last"}).encode()
            status, body = await app.ask("POST", "/v1/tool-calls", call, {"prefer": "respond-async"})
            assert status == 202, body
            task_id = json.loads(body)["taskId"]

            def send(method: str, **params: object) -> Any:
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
                headers = {"mcp-protocol-version": _VERSION, "mcp-method": method}
                return partial(app.ask, "POST", "/mcp", json.dumps(message).encode(), headers)

            requests = {
                "tools": partial(app.ask, "GET", "/v1/tools"),
                "task": partial(app.ask, "GET", f"/v1/tasks/{task_id}"),
                "tasks/get": send("tasks/get", taskId=task_id),
                "tools/list": send("tools/list"),
            }
            ask = requests[what]
            status, body = await ask()
            assert status == 200, body

            async def batch(n: int) -> float:
                started = process_time()
                for _ in repeat(None, n):
                    await ask()
                return process_time() - started

            yield batch


ROWS = (
    Row(
        name="a poll of a task, GET /v1/tasks/{id}",
        ours=partial(asked, "task"),
        other=partial(asked, "tools"),
        against="GET /v1/tools",
        hold=2,
        aim=1.5,
        pairs=101,
        batch_s=0.01,
    ),
    Row(
        name="a poll of a task, tasks/get on /mcp",
        ours=partial(asked, "tasks/get"),
        other=partial(asked, "tools"),
        against="GET /v1/tools",
        pairs=101,
        batch_s=0.01,
    ),
    Row(
        name="a poll of a task, tasks/get on /mcp",
        ours=partial(asked, "tasks/get"),
        other=partial(asked, "tools/list"),
        against="tools/list on /mcp",
        hold=2,
        aim=1.5,
        pairs=101,
        batch_s=0.01,
    ),
)
