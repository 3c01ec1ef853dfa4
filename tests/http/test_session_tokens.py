"""Plugin tokens: what each opens, and what it does not."""

from __future__ import annotations

import pytest
from httpx2 import Response
from tests.http.conftest import ALICE, BOB, ROOT, as_holder
from tests.http.session_plugin import Plugin, new_plugin, refusal, sessions_host, tool

pytestmark = pytest.mark.anyio

OF_PLUGIN = ["register-tools", "update-tools", "tool-results", "heartbeat"]
FORGED = "tps_{code}_" + "A" * 43


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.requirement("H-trust-plugin-token", "C-5-audit")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/tools"),
        ("POST", "/v1/tool-calls"),
        ("GET", "/v1/providers"),
        ("POST", "/v1/reload"),
        ("GET", "/v1/explain?tool=x"),
        ("GET", "/v1/samples"),
        ("GET", "/v1/samples/1"),
        ("POST", "/api/sessions"),
        ("GET", "/api/sessions"),
        ("DELETE", "/api/sessions/{code}"),
        ("GET", "/api/sessions/{code}/events"),
        ("POST", "/api/sessions/{code}/tool-calls"),
        ("GET", "/api/sessions/{code}/tool-calls/req_1"),
    ],
)
async def test_a_right_token_on_another_route_is_403_and_a_wrong_one_401(
    sample_package: None, method: str, path: str
) -> None:
    async with sessions_host(providers={"sample": {"enabled": True}}) as (_, _, client):
        plugin = await new_plugin(client)
        place = path.format(code=plugin.code)
        for right in (plugin.headers, {"X-API-Key": plugin.headers["Authorization"].removeprefix("Bearer ")}):
            answer = await client.request(method, place, headers=right)
            assert refusal(answer) == (403, "wrong_audience", "Authorization")
        for wrong in (FORGED.format(code=plugin.code), FORGED.format(code="AAAAAAAA"), "tps_", "tps_x_y"):
            answer = await client.request(method, place, headers=bearing(wrong))
            assert refusal(answer) == (401, "authentication_required", None)
        await client.delete(plugin.place, headers=ALICE)
        ended = await client.request(method, place, headers=plugin.headers)
        assert refusal(ended) == (401, "authentication_required", None)


@pytest.mark.requirement("H-trust-plugin-token")
async def test_a_plugins_token_is_not_asked_for_where_anybody_may_come_in() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        for path in ("/", "/healthz", "/readyz", "/metrics", "/v1/openapi.json", "/toolplug.js"):
            assert (await client.get(path, headers=plugin.headers)).status_code == 200


@pytest.mark.requirement("H-trust-plugin-token", "C-5-401")
@pytest.mark.parametrize("path", OF_PLUGIN)
async def test_what_only_a_plugin_may_is_403_for_callers_and_401_for_nobody(path: str) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        for place in (plugin.place, "/api/sessions/AAAAAAAA", "/api/sessions/malformed"):
            for caller in (ALICE, BOB, ROOT, as_holder("reader-key")):
                answer = await client.post(f"{place}/{path}", headers=caller, json={})
                assert refusal(answer) == (403, "wrong_audience", "Authorization")
            for nobody in ({}, as_holder("unknown-key"), bearing("unknown"), {"Authorization": "Basic YTpi"}):
                answer = await client.post(f"{place}/{path}", headers=nobody, json={})
                assert refusal(answer) == (401, "authentication_required", None)


@pytest.mark.requirement("H-trust-constant-401", "H-trust-plugin-token", "DYN-AC-10")
@pytest.mark.parametrize("path", [*OF_PLUGIN, "metadata", "stream"])
async def test_a_wrong_token_and_another_sessions_are_one_answer_whether_there_is_such_a_session_or_not(
    path: str,
) -> None:
    async with sessions_host() as (_, _, client):
        plugin, other = await new_plugin(client), await new_plugin(client)
        method = "GET" if path in {"metadata", "stream"} else "POST"
        answers: list[Response] = []
        for code in (plugin.code, "AAAAAAAA"):
            for wrong in (FORGED.format(code=code), other.headers["Authorization"].removeprefix("Bearer "), "tps_"):
                named = {**bearing(wrong), "X-Request-Id": "same"}
                answers.append(await client.request(method, f"/api/sessions/{code}/{path}", headers=named))
        assert {answer.status_code for answer in answers} == {401}
        assert len({(answer.content, str(answer.headers)) for answer in answers}) == 1
        malformed = await client.request(method, f"/api/sessions/ABC12345/{path}", headers=plugin.headers)
        assert refusal(malformed) == (400, "invalid_session_code", "code")


@pytest.mark.requirement("C-6-token-once", "C-6-register")
async def test_a_token_travels_as_bearer_or_as_key() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        token = plugin.headers["Authorization"].removeprefix("Bearer ")
        for given in (bearing(token), {"X-API-Key": token}, {"Authorization": f"bearer {token}"}):
            answer = await client.post(f"{plugin.place}/heartbeat", headers=given)
            assert answer.status_code == 200
        both = {**bearing(token), "X-API-Key": "alice-key"}
        assert (await client.post(f"{plugin.place}/heartbeat", headers=both)).status_code == 200
        shown = [
            await client.get("/api/sessions", headers=ALICE),
            await client.get(f"{plugin.place}/metadata", headers=plugin.headers),
            await client.get(f"{plugin.place}/events", headers=ALICE),
        ]
        assert not any("tps_" in answer.text for answer in shown)


@pytest.mark.requirement("H-trust-plugin-token", "C-5-no-auth")
async def test_on_a_host_without_auth_plugins_still_need_their_token_and_only_that() -> None:
    async with sessions_host(auth=None) as (_, _, client):
        plugin = await new_plugin(client, headers={})
        beat = f"{plugin.place}/heartbeat"
        assert (await client.post(beat, headers=plugin.headers)).status_code == 200
        assert refusal(await client.post(beat)) == (401, "authentication_required", None)
        assert refusal(await client.post(beat, headers=bearing("any"))) == (403, "wrong_audience", "Authorization")
        assert refusal(await client.get("/v1/tools", headers=plugin.headers)) == (
            403,
            "wrong_audience",
            "Authorization",
        )
        assert (await client.get(f"{plugin.place}/metadata")).status_code == 200


@pytest.mark.requirement("C-6-code-ended", "H-trust-plugin-token")
async def test_that_a_session_is_over_is_told_to_its_own_token_only() -> None:
    async with sessions_host() as (_, _, client):
        plugin, other = await new_plugin(client), await new_plugin(client)
        await client.delete(plugin.place, headers=ALICE)
        beat = f"{plugin.place}/heartbeat"
        assert refusal(await client.post(beat, headers=plugin.headers)) == (410, "session_ended", "code")
        for wrong in (bearing(FORGED.format(code=plugin.code)), other.headers):
            assert refusal(await client.post(beat, headers=wrong)) == (401, "authentication_required", None)
        assert refusal(await client.get(f"{plugin.place}/metadata", headers=BOB)) == (404, "session_not_found", "code")


@pytest.mark.requirement("C-5-tenant-everywhere")
async def test_a_plugin_acts_for_its_sessions_tenant() -> None:
    async with sessions_host() as (host, _, client):
        plugin = await new_plugin(client, tool("add"), headers=BOB)
        assert (await host.sessions.find(plugin.code, "t2")).tenant == "t2"
        assert (await client.get(f"{plugin.place}/metadata", headers=BOB)).status_code == 200
        assert (await client.get(f"{plugin.place}/metadata", headers=ALICE)).status_code == 404


@pytest.mark.requirement("C-6-code-unknown", "C-6-token-once")
async def test_a_restart_keeps_sessions_tools_and_tokens(tmp_path: object) -> None:
    store = f"sqlite:///{tmp_path}/state.db"
    async with sessions_host(store=store) as (_, _, client):
        plugin = await new_plugin(client, tool("add"))
        before = await plugin.metadata()
    async with sessions_host(store=store) as (_, _, client):
        again = Plugin(client, {"code": plugin.code, "pluginToken": plugin.headers["Authorization"].split()[1]})
        assert {**await again.metadata(), "expiresAt": before["expiresAt"]} == before
        assert (await again.update(added=[tool("more")])).json()["revision"] == 2
