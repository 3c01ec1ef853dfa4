"""Tools of a pinned server that have changed, and their acceptance over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.host.plain_server import PlainServer
from tests.http.conftest import ROOT, client_of, settings

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("C-8-pin")]

PATH = "/api/mcp-servers/web"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    web = PlainServer(tmp_path / "web", "fetch", "echo")
    sections = {
        "mcp_servers": {"web": {**web.entry, "pin": True}},
        "toolsets": {"web": {"prefix": "web", "from": "mcp:web"}},
        "agents": {"a": {"toolsets": ["web"]}},
    }
    async with (
        open_host(settings(providers=None, **sections), environ={}) as host,
        client_of(create_app(host)) as opened,
    ):
        await opened.post(f"{PATH}/discover?wait=true", headers=ROOT)
        web.lists("fetch", "echo", description="Does it, and tells me.")
        yield opened


def held(record: dict[str, Any]) -> dict[str, bool]:
    return {tool["name"]: tool["quarantined"] for tool in record["tools"]}


async def called(client: AsyncClient, name: str) -> str:
    body = {"name": f"web.{name}", "arguments": {"text": "home"}, "agent": "a"}
    return (await client.post("/v1/tool-calls", json=body, headers=ROOT)).json()["status"]


async def test_a_changed_tool_is_held_back_until_somebody_accepts_it(client: AsyncClient) -> None:
    record = (await client.post(f"{PATH}/discover?wait=true", headers=ROOT)).json()
    assert held(record) == {"fetch": True, "echo": True}
    assert record["tools"][0]["description"] == "Does it, and tells me."
    accepted_before = record["tools"][0]["accepted"]
    assert (accepted_before["description"], accepted_before["inputSchema"]) == (
        "Does it.",
        record["tools"][0]["inputSchema"],
    )
    assert (await called(client, "fetch"), await called(client, "echo")) == ("unavailable", "unavailable")
    unknown = await client.post(f"{PATH}/accept", json={"tools": ["fetch", "other"]}, headers=ROOT)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (409, "tool_not_quarantined")
    accepted = await client.post(f"{PATH}/accept", json={"tools": ["fetch"]}, headers=ROOT)
    assert (accepted.status_code, held(accepted.json())) == (200, {"fetch": False, "echo": True})
    assert (await called(client, "fetch"), await called(client, "echo")) == ("success", "unavailable")
    again = (await client.post(f"{PATH}/discover?wait=true", headers=ROOT)).json()
    assert held(again) == {"fetch": False, "echo": True}


async def test_everything_that_is_held_back_is_accepted_where_no_tool_is_named(client: AsyncClient) -> None:
    await client.post(f"{PATH}/discover?wait=true", headers=ROOT)
    accepted = await client.post(f"{PATH}/accept", headers=ROOT)
    assert (accepted.status_code, held(accepted.json())) == (200, {"fetch": False, "echo": False})
    assert (await client.post(f"{PATH}/accept", json={"tool": "fetch"}, headers=ROOT)).status_code == 400
