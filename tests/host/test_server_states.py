"""What the log says of each MCP server when a host is entered."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.host.plain_server import PlainServer

from toolplug import Principal, open_host

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("C-8-record")]

OPERATOR = Principal(subject="olga", scopes=frozenset({"admin", "operator"}))


async def test_one_line_says_of_each_server_where_it_stands(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolplug.host")
    web = PlainServer(tmp_path / "web", "fetch")
    servers = {"web": web.entry, "gone": {"command": "/nowhere/at-all"}, "off": {**web.entry, "enabled": False}}
    new = {**servers, "new": web.entry}
    settings = {"mcp_servers": servers, "store": f"sqlite:///{tmp_path}/state.db"}
    async with open_host(settings, environ={}, serving=False) as host:
        for name in ("web", "gone"):
            await host.servers.loaded.discover(name, by=OPERATOR, wait_s=60, request_id="")
        error = host.servers.loaded.server("default", "gone").record.error
    caplog.clear()
    async with open_host({**settings, "mcp_servers": new}, environ={}, serving=False):
        pass
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("MCP server ")]
    assert lines == [
        "MCP server web: up, 1 tool",
        f"MCP server gone: failed, 0 tools ({error})",
        "MCP server off: disabled, 0 tools",
        "MCP server new: its tools were never listed",
    ]
