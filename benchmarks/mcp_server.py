"""Model Context Protocol over HTTP: CPU time of the server's process for one request of 2026-07-28."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from benchmarks.applications.toolplug_host import KEY
from benchmarks.applications.toolplug_many import AGENT
from benchmarks.connection import request
from benchmarks.frame import MILLISECONDS, Row
from benchmarks.server import requested

VERSION = "2026-07-28"

_NOTHING: Mapping[str, object] = MappingProxyType({})
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}


def message(path: str, method: str, params: Mapping[str, object] = _NOTHING) -> bytes:
    """One request, with what its headers must repeat; the key is for those who ask for one."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _ENVELOPE}}
    headers = {
        "Authorization": f"Bearer {KEY}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
    }
    named = {"Mcp-Name": str(params["name"])} if "name" in params else {}
    return request("POST", path, {**headers, **named}, json.dumps(body).encode())


CALL = message("/mcp", "tools/call", {"name": "hello", "arguments": {"name": "World"}})

ROWS = (
    Row(
        name="MCP tools/call",
        ours=partial(requested, "toolplug_host", CALL),
        other=partial(requested, "mcp_bare", CALL),
        against="bare MCP SDK server",
        hold=1.25,
        aim=1.1,
        pairs=15,
        batch_s=0.2,
    ),
    Row(
        name="MCP tools/call",
        ours=partial(requested, "toolplug_host", CALL),
        other=partial(requested, "fastmcp_http", CALL),
        against="FastMCP server",
        hold=1 / 2,
        aim=1 / 3,
        pairs=15,
        batch_s=0.2,
    ),
    Row(
        name="MCP tools/list of 1,000 tools",
        ours=partial(requested, "toolplug_many", message(f"/mcp?agent={AGENT}", "tools/list")),
        other=partial(requested, "fastmcp_many", message("/mcp", "tools/list")),
        against="FastMCP server",
        hold=1 / 10,
        aim=1 / 50,
        unit=MILLISECONDS,
        pairs=9,
        batch_s=0.2,
    ),
)
