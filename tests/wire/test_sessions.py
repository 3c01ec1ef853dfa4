"""Sessions over HTTP: the same answers from one host and from several on one store, whichever a request reaches."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from tests.wire.application import application

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]


async def test_a_session_lives_in_all_hosts_at_once(client: httpx2.AsyncClient) -> None:
    async with application(client, lambda request: {"got": request["arguments"]}) as app:
        for number in range(12):
            done = (await app.call(n=number)).json()
            assert (done["status"], done["structured"]) == ("success", {"got": {"n": number}})
        together = await asyncio.gather(*(app.call(n=number) for number in range(30)))
        assert [done.json()["structured"]["got"]["n"] for done in together] == list(range(30))
        for number in range(6):
            added = {"name": f"t{number}", "description": "", "inputSchema": {"type": "object"}}
            updated = await app.post("update-tools", {"toolUpdates": {"added": [added]}, "reason": "new"})
            assert updated.json()["revision"] == number + 2
            found = await app.metadata()
            assert (found["revision"], found["toolCount"], found["pluginStatus"]) == (
                number + 2,
                number + 2,
                "attached",
            )
        await app.heard("tool-availability-update", 6)
        assert [data["revision"] for data in app.named("tool-availability-update")] == [2, 3, 4, 5, 6, 7]
        for _ in range(3):
            sessions = (await client.get("/api/sessions")).json()["sessions"]
            (listed,) = [session for session in sessions if session["code"] == app.code]
            assert (listed["pluginStatus"], listed["toolCount"]) == ("attached", 7)
        call = {"tool": "add", "arguments": {}}
        queued = (await client.post(f"{app.place}/tool-calls", json={**call, "wait": False})).json()
        state: dict[str, Any] = {}
        async with asyncio.timeout(30):
            while state.get("status") != "done":
                state = (await client.get(f"{app.place}/tool-calls/{queued['id']}")).json()
        assert state["result"]["structured"] == {"got": {}}
        assert set(app.answers) == {200}
        assert (await client.delete(app.place)).status_code == 204
        for _ in range(3):
            gone = await client.get(f"{app.place}/metadata")
            assert (gone.status_code, gone.json()["error"]["code"]) == (410, "session_ended")


async def test_each_request_is_answered_once_and_late_answers_are_refused(client: httpx2.AsyncClient) -> None:
    async with application(client) as app:
        calling = asyncio.create_task(app.call(n=1))
        request = await app.heard("tool-request")
        answers = await asyncio.gather(
            *(app.post("tool-results", {"id": request["id"], "result": number}) for number in range(6))
        )
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
        (accepted,) = [number for number, answer in enumerate(answers) if answer.status_code == 200]
        assert (await calling).json()["structured"] == accepted
        call = {"tool": "add", "arguments": {}, "timeoutMs": 300}
        late = await client.post(f"{app.place}/tool-calls", json=call)
        assert late.json()["status"] == "timeout"
        request = await app.heard("tool-request", 2)
        assert await app.heard("tool-cancelled") == {"id": request["id"], "reason": "timeout"}
        for _ in range(3):
            refused = await app.post("tool-results", {"id": request["id"], "result": "late"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (410, "too_late")
            unknown = await app.post("tool-results", {"id": "req_" + "0" * 24, "result": "x"})
            assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "request_not_found")
