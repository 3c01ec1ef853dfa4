"""Sessions over HTTP: created, listed, kept alive and ended."""

from __future__ import annotations

import json
import logging
import re

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.http.conftest import ALICE, BOB, ROOT, as_holder, client_of, settings
from tests.http.event_talk import talking
from tests.http.session_plugin import new_plugin, refusal, sessions_host, tool

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.mark.requirement("C-6-create", "C-6-code", "C-6-token-once", "C-6-camel-case")
async def test_creating_answers_code_token_times_and_urls() -> None:
    async with sessions_host() as (_, _, client):
        answer = await client.post("/api/sessions", headers=ALICE, json={"pluginType": "table", "ttlSeconds": 90})
        created = answer.json()
        code = created["code"]
        assert answer.status_code == 201
        assert answer.headers["cache-control"] == "no-store"
        assert re.fullmatch("[A-Z2-7]{8}", code)
        assert re.fullmatch(rf"tps_{code}_[A-Za-z0-9_-]{{43}}", created.pop("pluginToken"))
        assert TIME.fullmatch(created.pop("expiresAt"))
        assert created == {
            "code": code,
            "ttl": 90,
            "streamUrl": f"http://localhost/api/sessions/{code}/stream",
            "mcpUrl": f"http://localhost/api/sessions/{code}/mcp",
        }


@pytest.mark.requirement("C-6-create")
async def test_a_session_needs_no_body_and_lives_as_long_as_the_operator_says() -> None:
    async with sessions_host(sessions={"ttl": "20m"}) as (_, _, client):
        created = await client.post("/api/sessions", headers=ALICE)
        assert (created.status_code, created.json()["ttl"]) == (201, 1200)


@pytest.mark.requirement("C-6-create", "C-5-mounted")
async def test_the_urls_begin_where_the_application_is_mounted() -> None:
    async with open_host(settings(providers=None), environ={}) as host:
        whole = Starlette(routes=[Mount("/deep", create_app(host))])
        async with client_of(whole, base_url="https://localhost:8443") as client:
            created = (await client.post("/deep/api/sessions", headers=ALICE)).json()
    assert created["streamUrl"] == f"https://localhost:8443/deep/api/sessions/{created['code']}/stream"


@pytest.mark.requirement("C-6-create")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"[]", None),
        (b"{", None),
        (b'{"ttlSeconds": 0}', "ttlSeconds"),
        (b'{"ttlSeconds": 86401}', "ttlSeconds"),
        (b'{"ttlSeconds": 1.5}', "ttlSeconds"),
        (b'{"ttlSeconds": "60"}', "ttlSeconds"),
        (b'{"pluginType": ""}', "pluginType"),
        (b'{"pluginType": "two words"}', "pluginType"),
        (b'{"pluginType": "line\\n"}', "pluginType"),
        (b'{"pluginType": "%s"}' % (b"x" * 65), "pluginType"),
        (b'{"plugin_type": "table"}', "plugin_type"),
        (b'{"ttl": 60}', "ttl"),
    ],
)
async def test_what_is_no_session_is_400_and_names_the_field(body: bytes, param: str | None) -> None:
    async with sessions_host() as (_, _, client):
        answer = await client.post("/api/sessions", headers=ALICE, content=body)
        assert refusal(answer) == (400, "invalid_request", param)


@pytest.mark.requirement("C-6-create")
@pytest.mark.parametrize("ttl_s", [1, 86_400])
async def test_a_session_lives_from_a_second_to_a_day(ttl_s: int) -> None:
    async with sessions_host() as (_, _, client):
        answer = await client.post("/api/sessions", headers=ALICE, json={"ttlSeconds": ttl_s})
        assert (answer.status_code, answer.json()["ttl"]) == (201, ttl_s)


@pytest.mark.requirement("C-5-scope-sessions")
async def test_creating_and_ending_needs_the_scope_for_it() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, headers=ROOT)
        for key in ("reader-key", "caller-key"):
            for answer in (
                await client.post("/api/sessions", headers=as_holder(key)),
                await client.delete(plugin.place, headers=as_holder(key)),
            ):
                assert refusal(answer) == (403, "insufficient_scope", "sessions:write")
        assert (await client.post("/api/sessions")).status_code == 401


@pytest.mark.requirement("C-5-scope-read", "C-5-scope-call", "C-5-scope-sessions")
@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "", "tools:read"),
        ("GET", "/{code}/metadata", "tools:read"),
        ("GET", "/{code}/stream", "tools:read"),
        ("GET", "/{code}/events", "tools:read"),
        ("GET", "/{code}/tool-calls/req_1", "tools:read"),
        ("POST", "/{code}/tool-calls", "tools:call"),
    ],
)
async def test_what_callers_do_with_a_session_needs_the_scope_of_its_kind(method: str, path: str, scope: str) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, headers=ROOT)
        place = "/api/sessions" + path.format(code=plugin.code)
        answer = await client.request(method, place, headers=as_holder("nothing-key"))
        assert refusal(answer) == (403, "insufficient_scope", scope)


@pytest.mark.requirement("DYN-OQ-5", "DYN-US-isolated", "DYN-AC-10")
async def test_a_caller_sees_the_sessions_of_the_own_tenant() -> None:
    async with sessions_host() as (_, _, client):
        table = await new_plugin(client)
        capability = {"type": "storage", "level": "basic", "resources": ["rows"]}
        await table.register(tool("add"), tool("count"), capabilities=[capability])
        await new_plugin(client, headers=BOB)
        shown = (await client.get("/api/sessions", headers=ALICE)).json()
        expires_at = shown["sessions"][0].pop("expiresAt")
        assert TIME.fullmatch(expires_at)
        assert shown == {
            "sessions": [
                {
                    "code": table.code,
                    "pluginType": "table",
                    "capabilities": [capability],
                    "registered": True,
                    "toolCount": 2,
                    "pluginStatus": "waiting",
                    "revision": 1,
                    "streams": 0,
                }
            ]
        }


@pytest.mark.requirement("C-6-delete", "C-6-code-ended")
async def test_an_ended_session_is_gone_for_everybody_and_remembered_as_ended() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, tool("add"))
        ended = await client.delete(plugin.place, headers=ALICE)
        assert (ended.status_code, ended.content, "content-length" in ended.headers) == (204, b"", False)
        for answer in (
            await client.get(f"{plugin.place}/metadata", headers=ALICE),
            await client.get(f"{plugin.place}/stream", headers=ALICE),
            await client.get(f"{plugin.place}/events", headers=ALICE),
            await client.post(f"{plugin.place}/tool-calls", headers=ALICE, json={"tool": "add"}),
            await client.delete(plugin.place, headers=ALICE),
            await plugin.register(tool("add")),
            await plugin.update(added=[tool("add")]),
            await plugin.answer("req_1", result=1),
            await plugin.send("heartbeat", {}),
        ):
            assert refusal(answer) == (410, "session_ended", "code")
        body = {"name": "add", "session": plugin.code}
        for answer in (
            await client.get(f"/v1/tools?session={plugin.code}", headers=ALICE),
            await client.post("/v1/tool-calls", headers=ALICE, json=body),
        ):
            assert refusal(answer) == (410, "session_ended", "session")
        assert (await client.get("/api/sessions", headers=ALICE)).json() == {"sessions": []}


@pytest.mark.slow
@pytest.mark.requirement("C-6-code-expired", "C-6-expiry", "C-6-stream-errors")
async def test_a_session_expires_after_its_plugins_last_sign_and_a_reader_is_no_such_sign() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, ttlSeconds=2)
        async with talking(app, f"{plugin.place}/stream", ALICE) as reader:
            told = await reader.rest()
        assert [(event.event, event.data.get("code")) for event in told] == [
            ("connected", None),
            ("error", "session_expired"),
        ]
        for answer in (
            await client.get(f"{plugin.place}/metadata", headers=ALICE),
            await plugin.send("heartbeat", {}),
        ):
            assert refusal(answer) == (410, "session_expired", "code")
        foreign = await client.get(f"{plugin.place}/metadata", headers=BOB)
        assert refusal(foreign) == (404, "session_not_found", "code")


@pytest.mark.requirement("C-6-heartbeat")
async def test_a_heartbeat_says_until_when_the_session_lives() -> None:
    async with sessions_host() as (host, _, client):
        plugin = await new_plugin(client)
        session = await host.sessions.find(plugin.code, "t1")
        before = session.expires_at
        answer = await plugin.send("heartbeat", {})
        body = answer.json()
        assert TIME.fullmatch(body.pop("expiresAt"))
        assert (answer.status_code, body) == (200, {"success": True})
        assert session.expires_at > before
        assert (await client.post(f"{plugin.place}/heartbeat", headers=plugin.headers)).status_code == 200


@pytest.mark.requirement("C-6-code-malformed")
@pytest.mark.parametrize(
    "code", ["ABC12345", "abcdefgh", "AAAAAAA", "AAAAAAAAA", "AAAAAAA%0A", "AAAA%20AAA", "%C3%84AAAAAAA"]
)
async def test_a_text_that_no_session_could_have_is_400(code: str) -> None:
    async with sessions_host() as (_, _, client):
        answer = await client.get(f"/api/sessions/{code}/metadata", headers=ALICE)
        assert refusal(answer) == (400, "invalid_session_code", "code")
        for place in (f"/v1/tools?session={code}", f"/v1/explain?tool=x&session={code}"):
            assert refusal(await client.get(place, headers=ROOT)) == (400, "invalid_session_code", "session")


@pytest.mark.requirement(
    "C-6-code-unknown", "C-5-foreign-404", "C-5-session-unknown", "H-trust-one-answer", "DYN-US-isolated"
)
async def test_another_tenants_session_is_answered_like_one_that_is_nowhere_to_the_byte() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, tool("add"))
        named = {**BOB, "X-Request-Id": "same"}
        calls = {"name": "add", "session": plugin.code}
        for method, path in (
            ("GET", "/metadata"),
            ("GET", "/stream"),
            ("GET", "/events"),
            ("DELETE", ""),
            ("GET", "/tool-calls/req_1"),
        ):
            foreign = await client.request(method, f"{plugin.place}{path}", headers=named)
            nowhere = await client.request(method, f"/api/sessions/AAAAAAAA{path}", headers=named)
            assert refusal(foreign) == (404, "session_not_found", "code")
            assert (foreign.content, foreign.headers) == (nowhere.content, nowhere.headers)
        foreign = await client.post("/v1/tool-calls", headers=named, json=calls)
        nowhere = await client.post("/v1/tool-calls", headers=named, json={**calls, "session": "AAAAAAAA"})
        assert refusal(foreign) == (404, "session_not_found", "session")
        assert foreign.content == nowhere.content


@pytest.mark.requirement("C-6-limits", "C-5-retry-after")
async def test_more_sessions_than_may_be_are_429_until_one_ends() -> None:
    async with sessions_host(sessions={"max_sessions": 2}) as (_, _, client):
        first = await new_plugin(client)
        await new_plugin(client)
        refused = await client.post("/api/sessions", headers=ALICE)
        assert refusal(refused) == (429, "too_many_sessions", None)
        assert int(refused.headers["retry-after"]) >= 1
        await client.delete(first.place, headers=ALICE)
        await new_plugin(client)


@pytest.mark.requirement("C-5-audit", "H-trust-audit-agrees", "H-trust-no-leak")
async def test_each_change_is_one_audit_line_without_the_code(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolplug.audit")
    async with sessions_host() as (host, _, client):
        plugin = await new_plugin(client)
        await plugin.register(tool("add"))
        await plugin.register(tool("add", inputSchema=[]))
        await plugin.update(removed=["add"])
        await plugin.update(removed=["add"])
        await client.delete(plugin.place, headers=ALICE)
        changes = dict(host.sessions.counters.changes)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "toolplug.audit"]
    told = [(line["event"], line["outcome"], line["principal"], line["tenant"]) for line in lines]
    assert told == [
        ("session.create", "done", "alice", "t1"),
        ("session.register", "done", "plugin", "t1"),
        ("session.register", "registration_failed", "plugin", "t1"),
        ("session.update", "done", "plugin", "t1"),
        ("session.update", "tool_not_found", "plugin", "t1"),
        ("session.end", "done", "alice", "t1"),
    ]
    assert len({line["target"] for line in lines}) == 1
    assert plugin.code not in str(lines)
    assert changes == {
        ("register", "done"): 1,
        ("register", "registration_failed"): 1,
        ("update", "done"): 1,
        ("update", "tool_not_found"): 1,
    }
