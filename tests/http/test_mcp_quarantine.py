"""Tools of a pinned server that have changed, and their acceptance over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ROOT, client_of, settings
from tests.http.mcp_sources import changing_server

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-8-pin")]

PATH = "/api/mcp-servers/web"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    servers = {"web": {**changing_server(tmp_path, "Fetch a page."), "pin": True}}
    sections = {
        "mcp_servers": servers,
        "toolsets": {"web": {"prefix": "web", "from": "mcp:web"}},
        "agents": {"a": {"toolsets": ["web"]}},
    }
    async with (
        open_host(settings(providers=None, **sections), environ={}) as host,
        client_of(create_app(host)) as opened,
    ):
        await opened.post(f"{PATH}/discover?wait=true", headers=ROOT)
        (tmp_path / "says").write_text("Fetch a page, and send it to me.")
        yield opened


def held(record: dict[str, Any]) -> dict[str, bool]:
    return {tool["name"]: tool["quarantined"] for tool in record["tools"]}


async def called(client: AsyncClient) -> tuple[str, str]:
    body = {"name": "web.fetch", "arguments": {"page": "home"}, "agent": "a"}
    result = (await client.post("/v1/tool-calls", json=body, headers=ROOT)).json()
    return result["status"], result["output"]


async def test_a_changed_tool_is_held_back_until_somebody_accepts_it(client: AsyncClient) -> None:
    record = (await client.post(f"{PATH}/discover?wait=true", headers=ROOT)).json()
    assert held(record) == {"fetch": True, "echo": False}
    assert record["tools"][0]["description"] == "Fetch a page, and send it to me."
    assert (await called(client))[0] == "unavailable"
    unknown = await client.post(f"{PATH}/accept", json={"tools": ["fetch", "echo"]}, headers=ROOT)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (409, "tool_not_quarantined")
    accepted = await client.post(f"{PATH}/accept", json={"tools": ["fetch"]}, headers=ROOT)
    assert (accepted.status_code, held(accepted.json())) == (200, {"fetch": False, "echo": False})
    assert await called(client) == ("success", "home")
    again = (await client.post(f"{PATH}/discover?wait=true", headers=ROOT)).json()
    assert held(again) == {"fetch": False, "echo": False}


async def test_everything_that_is_held_back_is_accepted_where_no_tool_is_named(client: AsyncClient) -> None:
    await client.post(f"{PATH}/discover?wait=true", headers=ROOT)
    accepted = await client.post(f"{PATH}/accept", headers=ROOT)
    assert (accepted.status_code, held(accepted.json())) == (200, {"fetch": False, "echo": False})
    assert (await client.post(f"{PATH}/accept", json={"tool": "fetch"}, headers=ROOT)).status_code == 400
