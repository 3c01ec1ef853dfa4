"""HTTP: CPU time of the server's process for one request."""

from __future__ import annotations

import json
from functools import partial

from benchmarks.applications.toolplug_host import KEY
from benchmarks.connection import request
from benchmarks.frame import Row
from benchmarks.server import requested

_KEY = {"Authorization": f"Bearer {KEY}"}
_JSON = {"Content-Type": "application/json"}
_CALL = json.dumps({"id": "c1", "name": "hello", "arguments": {"name": "World"}}).encode()
_MCP = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hello", "arguments": {"name": "World"}}}
).encode()
_MCP_HEADERS = {**_JSON, "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}

bare = partial(requested, "starlette_bare", request("GET", "/v1/hello"))
tool_call = partial(requested, "toolplug_host", request("POST", "/v1/tool-calls", {**_KEY, **_JSON}, _CALL))
operation = partial(
    requested, "toolplug_host", request("POST", "/v1/tools/hello", {**_KEY, **_JSON}, b'{"name": "World"}')
)

ROWS = (
    Row(
        name="provider route with auth, tenant, metrics",
        ours=partial(requested, "toolplug_host", request("GET", "/v1/hello", _KEY)),
        other=bare,
        against="bare Starlette route",
        hold=1.3,
        aim=1.15,
        pairs=21,
        batch_s=0.2,
    ),
    Row(
        name="POST /v1/tool-calls",
        ours=tool_call,
        other=bare,
        against="bare Starlette GET",
        hold=2.6,
        aim=2.0,
        pairs=21,
        batch_s=0.2,
    ),
    Row(
        name="POST /v1/tools/{name}",
        ours=operation,
        other=tool_call,
        against="POST /v1/tool-calls",
        hold=1.1,
        aim=1.0,
        pairs=21,
        batch_s=0.2,
    ),
    Row(
        name="POST /v1/tool-calls",
        ours=tool_call,
        other=partial(requested, "fastmcp_http", request("POST", "/mcp", _MCP_HEADERS, _MCP)),
        against="FastMCP's HTTP call",
        hold=1 / 5,  # FastMCP 4.2 takes two thirds of the time of 4.1
        aim=1 / 10,
        pairs=15,
        batch_s=0.2,
    ),
)
