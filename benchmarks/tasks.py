"""Polling a task, beside listing tools: the host's application is called without a server."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from time import process_time
from typing import Any

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


class _Application:
    """Calls an ASGI application, one request at a time."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send a request; return status and body."""
        given = {"host": "localhost", "authorization": f"Bearer {KEY}", "content-length": str(len(body))}
        given |= {"content-type": "application/json", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        status, chunks, sent = 0, b"", False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:  # the client stays, and has no more to say
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status, chunks
            status = message.get("status", status)
            chunks += message.get("body", b"")

        await self._app(scope, receive, send)
        return status, chunks


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
            app = _Application(create_app(host))
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
