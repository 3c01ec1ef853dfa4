"""MCP over HTTP: a client of either era, whose requests reach one host or another."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire", "I17-2-mcp")]

ACCEPT = {"Accept": "application/json, text/event-stream"}


def message(method: str, number: int | None = None, **params: object) -> dict[str, Any]:
    """A request, or without a number a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})


async def test_a_session_of_the_older_era_goes_on_at_any_host(client: httpx2.AsyncClient) -> None:
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "wire", "version": "1"}}
    begun = await client.post("/mcp", headers=ACCEPT, json=message("initialize", 0, **about))
    assert begun.status_code == 200, begun.text
    headers = {**ACCEPT, "Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    accepted = await client.post("/mcp", headers=headers, json=message("notifications/initialized"))
    assert accepted.status_code == 202
    for number in range(1, 7):
        listed = (await client.post("/mcp", headers=headers, json=message("tools/list", number))).json()
        assert "hello" in [tool["name"] for tool in listed["result"]["tools"]]
        call = message("tools/call", number, name="hello", arguments={"name": "Ada"})
        done = (await client.post("/mcp", headers=headers, json=call)).json()
        assert "Ada" in done["result"]["content"][0]["text"]
    assert (await client.delete("/mcp", headers=headers)).status_code == 204
    for number in range(3):
        gone = await client.post("/mcp", headers=headers, json=message("tools/list", number))
        assert gone.status_code == 404
