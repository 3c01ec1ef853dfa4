"""Every refusal of a session says what, why and what to do."""

from __future__ import annotations

import pytest
from tests.http.conftest import ALICE, BOB
from tests.http.session_plugin import Json, Plugin, new_plugin, sessions_host, tool

pytestmark = pytest.mark.anyio

MESSAGES = {
    "invalid_session_code": "a session code is 8 of the characters A-Z and 2-7",
    "session_not_found": "no such session",
    "session_ended": "the session was ended; create a new one with POST /api/sessions",
    "not_registered": "nothing is registered in this session; begin with register-tools",
    "tool_exists": "the session has a tool 'add' already; send it under modified",
    "tool_not_found": "the session has no tool 'gone'",
    "revision_mismatch": "the session is at revision 1, not 7; read its metadata again",
    "too_many_tools": "3 tools; a session may have 2",
    "too_many_updates": "a session takes 4 updates a minute; put several changes into one",
    "too_many_sessions": "2 sessions open already; end one, or wait until one expires",
    "request_not_found": "no request of this session has that id; answer with the id of the tool-request event",
    "unsupported_version": "version '3' is not spoken here; send Accept-Version: 2.0.0, or none",
}


@pytest.mark.requirement("I3-6-refusals", "DYN-UX-errors", "DYN-AC-8")
async def test_each_refusal_says_what_is_wrong_and_what_to_do() -> None:
    limits = {"max_tools": 2, "max_updates_per_minute": 4, "max_sessions": 2}
    said: dict[str, str] = {}
    async with sessions_host(sessions=limits) as (_, _, client):

        async def note(method: str, path: str, body: Json | None = None, **headers: str) -> None:
            answer = await client.request(method, path, json=body, headers=ALICE | headers)
            error = answer.json()["error"]
            said[error["code"]] = error["message"]

        def of(plugin: Plugin) -> dict[str, str]:
            return plugin.headers

        plugin = await new_plugin(client)
        await note("POST", f"{plugin.place}/update-tools", {"toolUpdates": {}, "reason": "r"}, **of(plugin))
        await plugin.register(tool("add"))
        update = f"{plugin.place}/update-tools"
        await note("POST", update, {"toolUpdates": {"added": [tool("add")]}, "reason": "r"}, **of(plugin))
        await note("POST", update, {"toolUpdates": {"removed": ["gone"]}, "reason": "r"}, **of(plugin))
        await note("POST", update, {"toolUpdates": {}, "reason": "r"}, **of(plugin), **{"If-Match": "7"})
        await note("POST", update, {"toolUpdates": {}, "reason": "r"}, **of(plugin))
        await note("GET", "/api/sessions/ABC12345/metadata")
        await note("GET", "/api/sessions/ABCDEFGH/metadata")
        await note("GET", f"{plugin.place}/metadata", **{"Accept-Version": "3"})
        await note("POST", f"{plugin.place}/tool-results", {"id": "forged", "result": 1}, **of(plugin))
        second = await new_plugin(client)
        three = [tool("a"), tool("b"), tool("c")]
        body = {"pluginType": "table", "tools": three}
        await note("POST", f"{second.place}/register-tools", body, **of(second))
        await note("POST", "/api/sessions", {})
        await client.request("DELETE", second.place, headers=ALICE)
        await note("GET", f"{second.place}/metadata")
        foreign = await client.get(f"{plugin.place}/metadata", headers=BOB)
        assert foreign.json()["error"]["message"] == said["session_not_found"]
    assert said == MESSAGES
