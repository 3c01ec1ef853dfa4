"""Sessions and the tools that applications lend: what one process takes, the next one shows."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from tests.wire.answers import error_of
from tests.wire.application import Application, application
from tests.wire.callers import Caller, Deployment

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]

SCHEMA = {"type": "object"}


def tool(name: str, **more: object) -> dict[str, Any]:
    """A definition."""
    return {"name": name, "description": f"Do {name}.", "inputSchema": SCHEMA, **more}


async def created(client: httpx2.AsyncClient, **body: object) -> Application:
    """A session whose plugin has registered nothing and is not connected."""
    answer = await client.post("/api/sessions", json=body)
    assert answer.status_code == 201, answer.text
    return Application(client, answer.json())


async def names(app: Application) -> list[str]:
    """The names of the tools, the same at each process."""
    found = [[each["name"] for each in (await app.metadata())["tools"]] for _ in range(3)]
    assert found[0] == found[1] == found[2]
    return found[0]


UNUSABLE = {
    "no name": {"description": "x"},
    "a name with a blank": tool("a b"),
    "a provider's name": tool("echo"),
    "a prefix": tool("greet.x"),
    "no schema": {**tool("ok"), "inputSchema": 7},
    "a long description": tool("ok", description="x" * 9000),
    "a schema of no object": tool("ok", inputSchema={"type": "string"}),
    "a capability that was not declared": tool("ok", requires=["storage"]),
}
NO_CHANGES: dict[str, tuple[dict[str, Any], int, str]] = {
    "a tool that is there": ({"added": [tool("one")]}, 409, "tool_exists"),
    "removing none": ({"removed": ["none"]}, 409, "tool_not_found"),
    "modifying none": ({"modified": [tool("none")]}, 409, "tool_not_found"),
    "a bad definition": ({"added": [{"name": "a b"}]}, 422, "invalid_tool"),
    "too many": ({"added": [tool(f"t{number}") for number in range(21)]}, 422, "too_many_tools"),
    "text": ({"added": "x"}, 400, "invalid_request"),
}


async def test_a_session_is_there_at_once(client: httpx2.AsyncClient, deployment: Deployment) -> None:
    answer = await client.post("/api/sessions", json={"pluginType": "table", "ttlSeconds": 60})
    made = answer.json()
    assert len(made["code"]) == 8
    assert made["streamUrl"] == f"{deployment.url}/api/sessions/{made['code']}/stream"
    assert made["mcpUrl"] == f"{deployment.url}/api/sessions/{made['code']}/mcp"
    assert made["ttl"] == 60
    assert "no-store" in answer.headers["cache-control"]
    for _ in range(6):
        found = (await client.get(f"/api/sessions/{made['code']}/metadata")).json()
        assert (found["sessionId"], found["pluginType"], found["registered"]) == (made["code"], "table", False)
        assert made["pluginToken"] not in str(found)


@pytest.mark.parametrize("body", [{"ttlSeconds": 0}, {"ttlSeconds": 86401}, {"pluginType": 7}, {"colour": "red"}])
async def test_a_wrong_session_is_refused(client: httpx2.AsyncClient, body: dict[str, object]) -> None:
    answer = await client.post("/api/sessions", json=body)
    assert error_of(answer) == (400, "invalid_request")


@pytest.mark.parametrize("code", ["ABC12345", "abcdefgh", "ABCDEFG", "ABCDEFGHI"])
async def test_a_malformed_code_is_refused(client: httpx2.AsyncClient, code: str) -> None:
    assert error_of(await client.get(f"/api/sessions/{code}/metadata")) == (400, "invalid_session_code")


@pytest.mark.parametrize("path", ["metadata", "events", "stream", "tool-calls/call_1"])
async def test_an_unknown_session_is_not_found(client: httpx2.AsyncClient, path: str) -> None:
    assert error_of(await client.get(f"/api/sessions/ABCDEFGH/{path}")) == (404, "session_not_found")


async def test_a_session_is_listed_for_its_tenant(client: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    codes = {(await created(client)).code for _ in range(4)}
    for _ in range(3):
        assert {each["code"] for each in (await client.get("/api/sessions")).json()["sessions"]} == codes
    assert (await stranger.get("/api/sessions")).json() == {"sessions": []}


async def test_a_session_ends_everywhere(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    assert (await client.delete(app.place)).status_code == 204
    for _ in range(3):
        assert error_of(await client.get(f"{app.place}/metadata")) == (410, "session_ended")
        assert error_of(await app.post("heartbeat", {})) == (410, "session_ended")
        assert error_of(await client.delete(app.place)) == (410, "session_ended")
    assert (await client.get("/api/sessions")).json() == {"sessions": []}


async def test_a_session_expires_without_a_sign_of_its_plugin(client: httpx2.AsyncClient) -> None:
    app = await created(client, ttlSeconds=2)
    for _ in range(6):
        await asyncio.sleep(0.5)
        assert (await app.post("heartbeat", {})).status_code == 200
    await asyncio.sleep(2.5)
    for _ in range(3):
        assert error_of(await client.get(f"{app.place}/metadata")) == (410, "session_expired")


async def test_a_registration_is_seen_at_once(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    environment = {"version": "3.1"}
    storage = {"type": "storage", "level": "advanced", "resources": []}
    body = {
        "pluginType": "table",
        "tools": [tool("one"), tool("two", requires=["storage"])],
        "capabilities": [storage],
        "environment": environment,
    }
    answer = await app.post("register-tools", body)
    registered = answer.json()
    assert (answer.status_code, registered["registeredTools"], registered["revision"]) == (201, ["one", "two"], 1)
    assert registered["sessionConfiguration"]["limits"]["maxTools"] == 20
    for _ in range(6):
        found = await app.metadata()
        assert (found["revision"], found["toolCount"], found["registered"]) == (1, 2, True)
        assert (found["capabilities"], found["environment"]) == ([storage], environment)
    assert await names(app) == ["one", "two"]


async def test_a_registration_replaces_the_one_before(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    for revision, tools in enumerate((["one", "two"], ["two", "three"], [], ["one"]), 1):
        answer = await app.post("register-tools", {"tools": [tool(name) for name in tools]})
        assert answer.json()["revision"] == revision
        assert await names(app) == tools


@pytest.mark.parametrize("unusable", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_an_unusable_tool_is_named_and_the_others_are_taken(
    client: httpx2.AsyncClient, unusable: dict[str, Any]
) -> None:
    app = await created(client)
    assert error_of(await app.post("register-tools", {"tools": [unusable]})) == (422, "registration_failed")
    whole = {"tools": [tool("good"), unusable], "atomic": True}
    assert error_of(await app.post("register-tools", whole)) == (422, "registration_failed")
    assert (await app.metadata())["registered"] is False
    answer = (await app.post("register-tools", {**whole, "atomic": False})).json()
    assert (answer["registeredTools"], len(answer["failedTools"])) == (["good"], 1)
    assert await names(app) == ["good"]


async def test_more_tools_than_the_limit_are_refused(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    many = {"tools": [tool(f"t{number}") for number in range(21)]}
    assert error_of(await app.post("register-tools", many)) == (422, "too_many_tools")
    assert (await app.metadata())["registered"] is False


@pytest.mark.parametrize("capability", [{"type": "magic", "level": "basic"}, {"type": "storage", "level": "huge"}])
async def test_an_unknown_capability_is_refused(client: httpx2.AsyncClient, capability: dict[str, str]) -> None:
    app = await created(client)
    body = {"tools": [tool("one")], "capabilities": [{**capability, "resources": []}]}
    assert error_of(await app.post("register-tools", body)) == (422, "invalid_capability")


async def test_an_update_is_seen_at_once(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    await app.post("register-tools", {"tools": [tool("one"), tool("two")]})
    changes = {"added": [tool("three")], "removed": ["one"], "modified": [tool("two", description="New.")]}
    answer = await app.post("update-tools", {"toolUpdates": changes, "reason": "why"})
    assert (answer.status_code, answer.json()["revision"]) == (200, 2)
    for _ in range(6):
        found = await app.metadata()
        assert (found["revision"], [each["description"] for each in found["tools"]]) == (2, ["New.", "Do three."])


@pytest.mark.parametrize("case", NO_CHANGES.values(), ids=NO_CHANGES.keys())
async def test_an_update_is_all_or_nothing(client: httpx2.AsyncClient, case: tuple[dict[str, Any], int, str]) -> None:
    changes, status, code = case
    app = await created(client)
    await app.post("register-tools", {"tools": [tool("one")]})
    good = {"removed": ["one"]} if "added" not in changes and "removed" not in changes else {}
    answer = await app.post("update-tools", {"toolUpdates": {**good, **changes}, "reason": "why"})
    assert error_of(answer) == (status, code)
    assert (await app.metadata())["revision"] == 1
    assert await names(app) == ["one"]


async def test_nothing_can_be_updated_before_a_registration(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    answer = await app.post("update-tools", {"toolUpdates": {"added": [tool("one")]}, "reason": ""})
    assert error_of(answer) == (409, "not_registered")


async def test_a_change_of_nothing_is_no_revision(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    await app.post("register-tools", {"tools": [tool("one")]})
    for _ in range(3):
        answer = await app.post("update-tools", {"toolUpdates": {"modified": [tool("one")]}, "reason": ""})
        assert (answer.status_code, answer.json()["revision"]) == (200, 1)


async def test_an_update_may_name_the_revision_that_it_changes(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    await app.post("register-tools", {"tools": [tool("one")]})
    body = {"toolUpdates": {"added": [tool("two")]}, "reason": ""}
    place = f"{app.place}/update-tools"
    stale = await client.post(place, json=body, headers={**app.token, "If-Match": "7"})
    assert stale.status_code == 412
    taken = await client.post(place, json=body, headers={**app.token, "If-Match": "1"})
    assert (taken.status_code, taken.json()["revision"]) == (200, 2)
    again = {"toolUpdates": {"added": [tool("three")]}, "reason": ""}
    assert (await client.post(place, json=again, headers={**app.token, "If-Match": "1"})).status_code == 412
    assert await names(app) == ["one", "two"]


async def test_of_updates_to_one_revision_one_is_taken(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    await app.post("register-tools", {"tools": []})
    headers = {**app.token, "If-Match": "1"}
    answers = await asyncio.gather(
        *(
            client.post(
                f"{app.place}/update-tools",
                json={"toolUpdates": {"added": [tool(f"t{number}")]}, "reason": ""},
                headers=headers,
            )
            for number in range(6)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 5
    assert len(await names(app)) == 1


async def test_updates_at_the_same_time_are_all_taken(client: httpx2.AsyncClient) -> None:
    app = await created(client)
    await app.post("register-tools", {"tools": []})
    bodies = [{"toolUpdates": {"added": [tool(f"t{number}")]}, "reason": ""} for number in range(9)]
    answers = await asyncio.gather(*(app.post("update-tools", body) for body in bodies))
    assert sorted(answer.json()["revision"] for answer in answers) == list(range(2, 11))
    assert {*await names(app)} == {f"t{number}" for number in range(9)}


async def test_a_reader_that_has_the_metadata_is_not_sent_them_again(client: httpx2.AsyncClient) -> None:
    async with application(client) as app:
        first = await client.get(f"{app.place}/metadata")
        for _ in range(4):
            again = await client.get(f"{app.place}/metadata", headers={"If-None-Match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        await app.post("update-tools", {"toolUpdates": {"removed": ["add"]}, "reason": ""})
        for _ in range(4):
            changed = await client.get(f"{app.place}/metadata", headers={"If-None-Match": first.headers["etag"]})
            assert changed.status_code == 200


@pytest.mark.parametrize(("version", "status"), [("2.0.0", 200), ("^2.0", 200), ("1.0.0", 406), ("3", 406)])
async def test_metadata_have_a_version(client: httpx2.AsyncClient, version: str, status: int) -> None:
    app = await created(client)
    answer = await client.get(f"{app.place}/metadata", headers={"Accept-Version": version})
    assert answer.status_code == status


async def test_a_token_opens_its_own_session_only(client: httpx2.AsyncClient) -> None:
    mine, other = await created(client), await created(client)
    for path in ("register-tools", "update-tools", "tool-results", "heartbeat"):
        answer = await client.post(f"{other.place}/{path}", json={}, headers=mine.token)
        assert answer.status_code in (401, 403, 404)
    assert (await client.get(f"{mine.place}/metadata", headers=mine.token)).status_code == 200


async def test_a_sessions_tools_are_listed_and_called_with_it(client: httpx2.AsyncClient, caller: Caller) -> None:
    async with application(client, lambda request: request["arguments"]) as app:
        for _ in range(3):
            listed = (await client.get(f"/v1/tools?session={app.code}&format=mcp")).json()["tools"]
            assert [each["name"] for each in listed if each["name"] in ("add", "hello")] == ["hello", "add"]
            body = {"name": "add", "arguments": {"n": 1}, "session": app.code}
            called = (await client.post("/v1/tool-calls", json=body)).json()
            assert (called["status"], called["structured"]) == ("success", {"n": 1})
            catalog = (await client.get(f"/api/catalog?session={app.code}")).json()["tools"]
            assert {each["name"]: each["type"] for each in catalog}["add"] == "session"
        stranger = await caller()
        called = await stranger.post("/v1/tool-calls", json=body)
        assert error_of(called) == (404, "session_not_found")
