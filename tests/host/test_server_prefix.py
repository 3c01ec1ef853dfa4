"""MCP servers with a prefix: their tools are in every catalog without agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.host.plain_server import PlainServer
from tests.host.test_mcp_servers import OPERATOR, dumped, found, plain, settings

from toolplug import CallContext, Host, ToolCall, ToolStatus, open_host
from toolplug.errors import ApiError

__all__ = ["plain"]

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]


async def listed_as(host: Host, **where: str) -> list[str]:
    return list(await host.catalog_for(OPERATOR, **where))


@pytest.mark.requirement("C-2-server-prefix")
async def test_a_server_with_a_prefix_is_in_every_catalog_without_agent(plain: PlainServer) -> None:
    config = settings(
        plain,
        providers={"hello": {"enabled": True}},
        mcp_servers={
            "files": {**plain.entry, "prefix": "files"},
            "off": {**plain.entry, "prefix": "off", "enabled": False},
        },
    )
    async with open_host(config, environ={}) as host:
        held = host.executor_for(OPERATOR)
        await found(host)
        session = (await host.sessions.create(OPERATOR)).session.code
        everybody = ["hello", "files.read", "files.write"]
        assert await listed_as(host) == everybody
        assert list(held.catalog) == everybody
        assert await listed_as(host, session=session) == everybody
        assert await listed_as(host, agent="writer") == ["fs.read", "fs.write", "own.read", "own.write"]
        result = await held.execute(ToolCall("c1", "files.read", {"text": "a"}), CallContext(principal=OPERATOR))
        assert result.status is ToolStatus.SUCCESS
        explained = host.explain("files.read", OPERATOR)
        assert (explained.callable, explained.provider) == (True, "files")
        infos = [item for item in json.loads(host.catalog_page(OPERATOR).body)["tools"] if "toolset" not in item]
        assert [(item["name"], item.get("server"), item["callable"]) for item in infos] == [
            ("hello", None, True),
            ("files.read", "files", True),
            ("files.write", "files", True),
        ]


@pytest.mark.requirement("C-2-server-prefix")
async def test_a_prefix_comes_and_goes_with_a_reload(plain: PlainServer, tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text(dumped({"store": "memory://", "mcp_servers": {"files": plain.entry}}))
    async with open_host(file, environ={}) as host:
        held = host.executor_for(OPERATOR)
        await found(host)
        assert list(held.catalog) == []
        file.write_text(dumped({"store": "memory://", "mcp_servers": {"files": {**plain.entry, "prefix": "files"}}}))
        await host.reload(by=OPERATOR)
        assert list(held.catalog) == ["files.read", "files.write"]


@pytest.mark.requirement("C-2-server-prefix")
async def test_a_prefix_is_used_once(plain: PlainServer) -> None:
    config = {
        "store": "memory://",
        "mcp_servers": {
            "one": {**plain.entry, "prefix": "fs"},
            "two": {**plain.entry, "prefix": "free"},
            "three": {**plain.entry, "prefix": "free"},
            "four": {**plain.entry, "prefix": "a.b"},
        },
        "toolsets": {"shared": {"prefix": "fs", "from": "mcp:two"}},
    }
    async with open_host(config, environ={}) as host:
        texts = [str(problem) for problem in host.wrong_servers]
        assert [text.split(": ", 2)[1] for text in texts] == [
            "mcp_servers.one.prefix",
            "mcp_servers.three.prefix",
            "mcp_servers.four.prefix",
        ]
        assert "that of toolset 'shared' in line" in texts[0]
        assert "that of MCP server 'two'" in texts[1]
        with pytest.raises(ApiError, match="prefix 'free' is that of MCP server 'two'"):
            host.register_mcp_toolset("late", "free", "two")
