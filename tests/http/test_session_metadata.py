"""What a session shows: its metadata, its place in the callers' catalogs, and its log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.http.conftest import ALICE, BOB, ROOT
from tests.http.event_talk import talking
from tests.http.session_plugin import new_plugin, refusal, sessions_host, tool

pytestmark = pytest.mark.anyio

MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.requirement("C-6-metadata", "DYN-metadata-endpoint", "DYN-AC-2", "DYN-environment-shape")
async def test_metadata_has_everything_that_a_client_needs() -> None:
    environment = {"version": "1.0", "features": [], "limitations": ["no export"], "contextInfo": {"rows": 3}}
    capability = {"type": "storage", "level": "basic", "resources": []}
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        begun = datetime.now(UTC)
        await plugin.register(tool("add"), capabilities=[capability], environment=environment)
        ended = datetime.now(UTC)
        shown = await plugin.metadata()
        updated = datetime.fromisoformat(shown.pop("lastUpdated"))
        assert begun - MILLISECOND <= updated <= ended, "the time of the registration, cut to milliseconds"
        assert updated < datetime.fromisoformat(shown.pop("expiresAt"))
        assert shown == {
            "apiVersion": "2.0.0",
            "sessionId": plugin.code,
            "pluginType": "table",
            "pluginStatus": "waiting",
            "capabilities": [capability],
            "tools": [{**tool("add"), "available": True}],
            "environment": environment,
            "toolCount": 1,
            "revision": 1,
            "registered": True,
        }
        assert (await client.get(f"{plugin.place}/metadata", headers=ALICE)).json()["sessionId"] == plugin.code


@pytest.mark.requirement("C-6-default-toolset", "DYN-compat-default", "DYN-compat-registered", "DYN-AC-7")
async def test_a_session_without_registration_shows_the_default_toolset_until_there_is_one(
    sample_package: None,
) -> None:
    toolsets = {"web": {"prefix": "web", "from": "provider:sample", "scope": "shared"}}
    async with sessions_host(
        providers={"sample": {"enabled": True}}, toolsets=toolsets, sessions={"default_toolset": "web"}
    ) as (_, _, client):
        plugin = await new_plugin(client)
        before = await plugin.metadata()
        names = {shown["name"] for shown in before["tools"]}
        assert (before["registered"], before["revision"], before["toolCount"]) == (False, 0, len(before["tools"]))
        assert "web.whoami" in names
        listed = (await client.get(f"/v1/tools?format=mcp&session={plugin.code}", headers=ALICE)).json()["tools"]
        assert {"whoami", "web__whoami"} <= {shown["name"] for shown in listed}
        await plugin.register(tool("add"))
        assert await plugin.names() == ["add"]


@pytest.mark.requirement("C-6-metadata")
async def test_metadata_is_sent_again_only_where_it_says_something_new() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        place = f"{plugin.place}/metadata"
        first = await client.get(place, headers=ALICE)
        etag = first.headers["etag"]
        assert etag.startswith('W/"1-')
        await plugin.send("heartbeat", {})
        for known in (etag, etag.removeprefix("W/"), f'"other", {etag}', "*"):
            again = await client.get(place, headers={**ALICE, "If-None-Match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        async with talking(app, f"{plugin.place}/stream", plugin.headers) as stream:
            await stream.until("connected")
            attached = await client.get(place, headers={**ALICE, "If-None-Match": etag})
            assert (attached.status_code, attached.json()["pluginStatus"]) == (200, "attached")
        await plugin.update(removed=["add"])
        newer = await client.get(place, headers={**ALICE, "If-None-Match": etag})
        assert (newer.status_code, newer.json()["toolCount"]) == (200, 0)
        head = await client.head(place, headers=ALICE)
        assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", newer.headers["etag"])


@pytest.mark.requirement("C-6-metadata-version")
@pytest.mark.parametrize(
    ("accepted", "status"),
    [
        *[(good, 200) for good in ("2.0.0", "2", "2.0", "2.x", "2.0.x", "^2.0.0", "~2.0", "v2", "*", "1.0, 2.0.0")],
        *[(bad, 406) for bad in ("1.0.0", "3", "2.1.0", "", "two", "2.0.0.0", "1, 3")],
    ],
)
async def test_a_version_that_is_not_spoken_is_406(accepted: str, status: int) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        answer = await client.get(f"{plugin.place}/metadata", headers={**ALICE, "Accept-Version": accepted})
        assert answer.status_code == status
        if status == 406:
            assert refusal(answer) == (406, "unsupported_version", "Accept-Version")


@pytest.mark.requirement("C-6-detached", "C-6-grace", "DYN-UX-errors", "DYN-UX-live", "C-3-unavailable")
async def test_the_tools_of_a_plugin_that_does_not_come_back_stay_in_metadata_and_leave_the_listings() -> None:
    async with sessions_host(sessions={"grace": "50ms"}) as (_, app, client):
        plugin = await new_plugin(client)
        listing = f"/v1/tools?format=mcp&session={plugin.code}"
        async with talking(app, f"{plugin.place}/stream", ALICE) as reader:
            async with talking(app, f"{plugin.place}/stream", plugin.headers):
                attached = await reader.until("plugin-status")
                await plugin.register(tool("add"))
                listed = (await client.get(listing, headers=ALICE)).json()["tools"]
            detached = await reader.until("plugin-status")
            shown = await plugin.metadata()
            away = (await client.get(listing, headers=ALICE)).json()["tools"]
            call = await client.post(f"{plugin.place}/tool-calls", headers=ALICE, json={"tool": "add", "id": "c1"})
            async with talking(app, f"{plugin.place}/stream", plugin.headers):
                again = await reader.until("plugin-status")
                back = await plugin.metadata()
        assert [told.data["status"] for told in (attached, detached, again)] == ["attached", "detached", "attached"]
        assert (detached.data["sessionCode"], [tool["name"] for tool in listed], away) == (plugin.code, ["add"], [])
        assert shown["pluginStatus"] == "detached"
        assert shown["tools"] == [{**tool("add"), "available": False, "reason": "plugin_gone"}]
        assert call.json() == {
            "call_id": "c1",
            "output": 'tool "add" is unavailable: plugin_gone: the application that lends it is not connected; '
            "open it again",
            "is_error": True,
            "status": "unavailable",
            "retry_after_s": 5.0,
            "metadata": {"code": "plugin_gone"},
        }
        assert back["tools"] == [{**tool("add"), "available": True}]


@pytest.mark.requirement("C-5-catalog-session", "C-1-foreign-tool-name", "DYN-AC-7", "DYN-US-register")
async def test_a_sessions_tools_follow_the_providers_in_its_callers_listing(sample_package: None) -> None:
    async with sessions_host(providers={"sample": {"enabled": True}}) as (_, _, client):
        alone = (await client.get("/v1/tools?format=mcp", headers=ALICE)).json()["tools"]
        plugin = await new_plugin(client, tool("add"), tool("rows/add.all"))
        path = f"/v1/tools?format=mcp&session={plugin.code}"
        listed = await client.get(path, headers=ALICE)
        names = [shown["name"] for shown in listed.json()["tools"]]
        assert names[:-2] == [shown["name"] for shown in alone]
        assert names[-2] == "add"
        assert names[-1].startswith("rows_add_all_-")
        known = {**ALICE, "If-None-Match": listed.headers["etag"]}
        assert (await client.get(path, headers=known)).status_code == 304
        await plugin.update(removed=["add"])
        assert (await client.get(path, headers=known)).status_code == 200
        assert (await client.get("/v1/tools?format=mcp", headers=ALICE)).json()["tools"] == alone


@pytest.mark.requirement("C-5-explain", "DYN-UX-errors")
async def test_explain_knows_a_sessions_tool() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, tool("add"), headers=ROOT)
        told = await client.get(f"/v1/explain?tool=add&session={plugin.code}", headers=ROOT)
        assert (told.status_code, told.json()["found"], told.json()["callable"]) == (200, True, True)
        without = await client.get("/v1/explain?tool=add", headers=ROOT)
        assert (without.status_code, without.json()["found"]) == (200, False)


@pytest.mark.requirement("C-6-events-log", "DYN-UX-debug")
async def test_the_log_is_read_as_json_from_a_position() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        place = f"{plugin.place}/events"
        empty = (await client.get(place, headers=ALICE)).json()
        assert empty == {"events": [], "position": empty["position"], "resync": False}
        await plugin.register(tool("add"))
        first = (await client.get(place, headers=ALICE)).json()
        assert [event["event"] for event in first["events"]] == ["tool-availability-update"]
        assert first["events"][0]["data"]["updates"]["added"] == [tool("add")]
        assert first["position"] == first["events"][0]["id"]
        await plugin.update(removed=["add"], reason="done")
        after = (await client.get(f"{place}?after={first['position']}", headers=ALICE)).json()
        assert [(event["event"], event["data"]["reason"]) for event in after["events"]] == [
            ("tool-availability-update", "done")
        ]
        assert after["resync"] is False
        newest = (await client.get(f"{place}?after={after['position']}", headers=ALICE)).json()
        assert newest == {"events": [], "position": after["position"], "resync": False}
        both = [*first["events"], *after["events"]]
        unknown = (await client.get(f"{place}?after=999", headers=ALICE)).json()
        assert unknown == {"events": both, "position": after["position"], "resync": True}
        for bad in ("", "-1", "x", "1.0", "1" * 19):
            answer = await client.get(f"{place}?after={bad}", headers=ALICE)
            assert refusal(answer) == (400, "invalid_request", "after")
        assert refusal(await client.get(place, headers=BOB)) == (404, "session_not_found", "code")


@pytest.mark.requirement("C-6-events-log", "H-trust-no-leak")
async def test_the_log_shows_requests_without_their_arguments() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        async with talking(app, f"{plugin.place}/stream", plugin.headers) as stream:
            body = {"tool": "add", "arguments": {"secret": "rows"}, "wait": False}
            await client.post(f"{plugin.place}/tool-calls", headers=ALICE, json=body)
            request = await stream.until("tool-request")
            logged = (await client.get(f"{plugin.place}/events", headers=ALICE)).json()["events"]
            await plugin.answer(request.data["id"], result=None)
        shown = next(event for event in logged if event["event"] == "tool-request")
        assert request.data.pop("arguments") == request.data.pop("args") == {"secret": "rows"}
        assert shown == {"id": request.id, "event": "tool-request", "data": request.data}
