"""MCP servers over HTTP: added, shown, changed, discovered and removed, each tenant its own."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from httpx2 import AsyncClient, Response
from pydantic import TypeAdapter
from tests.http.conftest import ALICE, KEYS, ROOT, as_holder, client_of, settings
from tests.http.mcp_sources import DEAD_SERVER, sample_server, silent_server

from toolplug import Host, open_host
from toolplug.http import create_app
from toolplug.parts.mcp.http.servers import ServerAnswer

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

Json = dict[str, Any]

PATH = "/api/mcp-servers"
OTHER_ROOT = {"key": "other-root-key", "subject": "eve", "tenant": "t2", "scopes": ["admin"]}
EVE = as_holder("other-root-key")
READER = as_holder("reader-key")
SECRET = "s3cret-of-the-file"


@pytest.fixture
def source(sample_package: None) -> Iterator[str]:
    with sample_server() as address:
        yield address


@pytest.fixture
async def host(source: str) -> AsyncIterator[Host]:
    auth = {"api_keys": [*KEYS["api_keys"], OTHER_ROOT]}
    servers = {"docs": {"url": source, "headers": {"X-Token": SECRET}, "tools": {"fails": "deny"}}}
    whole = settings(auth=auth, egress={"allow": ["loopback"]}, mcp_servers=servers)
    async with open_host(whole, environ={}) as opened:
        yield opened


@pytest.fixture
async def client(host: Host) -> AsyncIterator[AsyncClient]:
    async with client_of(create_app(host)) as opened:
        yield opened


def code(answer: Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


async def added(client: AsyncClient, name: str, url: str, *, query: str = "", **more: object) -> Json:
    answer = await client.post(f"{PATH}{query}", json={"id": name, "url": url, **more}, headers=ROOT)
    assert answer.status_code == 202, answer.text
    TypeAdapter(ServerAnswer).validate_python(answer.json())
    return answer.json()


async def shown(client: AsyncClient, name: str, headers: dict[str, str] = ROOT) -> Json:
    answer = await client.get(f"{PATH}/{name}", headers=headers)
    assert answer.status_code == 200, answer.text
    TypeAdapter(ServerAnswer).validate_python(answer.json())
    return answer.json()


async def ids(client: AsyncClient, headers: dict[str, str]) -> list[str]:
    answer = await client.get(PATH, headers=headers)
    return [server["id"] for server in answer.json()["servers"]]


@pytest.mark.requirement("C-8-add", "C-8-add-http", "DISC-on-add", "DISC-record", "C-3-policy-http-server")
async def test_a_server_is_added_at_once_and_its_record_says_that_it_is_being_discovered(client: AsyncClient) -> None:
    with silent_server() as address:
        record = await added(client, "slow", address, headers={"X-Key": "k3y"}, tools={"a": "allow"})
    digest = record.pop("configHash")
    assert len(digest) == 64
    assert record == {
        "id": "slow",
        "source": "api",
        "announcesChanges": None,
        "enabled": True,
        "policy": "ask",
        "pin": False,
        "toolPolicies": {"a": "allow"},
        "transport": {"url": address, "headers": {"X-Key": "***"}},
        "state": "discovering",
        "status": "discovering",
        "tools": [],
        "lastDiscovery": None,
        "error": None,
        "stale": False,
        "nextRetry": None,
        "leftOut": [],
    }
    assert (await shown(client, "slow"))["status"] == "discovering"


@pytest.mark.requirement("C-8-wait", "C-8-discover-route", "DISC-on-demand", "DISC-status")
async def test_who_waits_is_answered_with_what_was_found(client: AsyncClient, source: str) -> None:
    record = await added(client, "again", source, query="?wait=20s", policy="allow")
    assert (record["status"], record["error"], record["stale"]) == ("success", None, False)
    assert record["lastDiscovery"].endswith("Z")
    echo = record["tools"][0]
    assert (echo["name"], echo["description"], echo["policy"]) == ("echo", "Say it again.", "allow")
    assert (echo["cut"], echo["quarantined"]) == ([], False)
    assert echo["inputSchema"]["required"] == ["text"]
    waited = await client.post(f"{PATH}/docs/discover?wait=true", headers=ROOT)
    assert (waited.status_code, waited.json()["status"]) == (200, "success")
    assert {tool["name"]: tool["policy"] for tool in waited.json()["tools"]}["fails"] == "deny"
    at_once = await client.post(f"{PATH}/docs/discover", headers=ROOT)
    assert at_once.status_code == 202
    assert len(at_once.json()["tools"]) == len(waited.json()["tools"])


@pytest.mark.requirement("C-8-wait", "C-8-discover-route")
async def test_a_wait_ends_before_a_server_that_never_answers_does(client: AsyncClient) -> None:
    with silent_server() as address:
        assert (await added(client, "slow", address, query="?wait=10ms"))["status"] == "discovering"
        answer = await client.post(f"{PATH}/slow/discover?wait=0.01", headers=ROOT)
    assert (answer.status_code, answer.json()["status"]) == (202, "discovering")


@pytest.mark.requirement("C-8-wait")
@pytest.mark.parametrize("wait", ["61s", "2m", "soon", "-1", "nan", "1e9"])
async def test_a_wait_that_is_none_is_refused_before_anything_happens(client: AsyncClient, wait: str) -> None:
    body = {"id": "new", "url": DEAD_SERVER}
    assert code(await client.post(f"{PATH}?wait={wait}", json=body, headers=ROOT)) == (400, "invalid_request", "wait")
    assert code(await client.post(f"{PATH}/docs/discover?wait={wait}", headers=ROOT)) == (
        400,
        "invalid_request",
        "wait",
    )
    assert await ids(client, ROOT) == ["docs"]


@pytest.mark.requirement("DISC-add-failed", "DISC-failure-graceful", "DISC-failure-recorded")
async def test_a_server_that_cannot_be_reached_is_kept_with_its_failure(client: AsyncClient) -> None:
    record = await added(client, "dead", DEAD_SERVER, query="?wait=true")
    assert (record["status"], record["tools"]) == ("failed", [])
    assert record["error"]
    assert record["nextRetry"].endswith("Z")
    assert await ids(client, ROOT) == ["docs", "dead"]
    assert (await client.get("/api/catalog", headers=ROOT)).status_code == 200


@pytest.mark.requirement("H-trust-stdio-operator", "C-8-add-http")
@pytest.mark.parametrize("part", [{"command": "sh"}, {"args": ["-c", "x"]}, {"env": {"A": "1"}}, {"cwd": "/"}])
async def test_no_process_can_be_described_over_http(
    client: AsyncClient, caplog: pytest.LogCaptureFixture, part: Json
) -> None:
    caplog.set_level(logging.INFO, "toolplug.audit")
    name = next(iter(part))
    url = {"url": DEAD_SERVER}
    bodies: list[Json] = [{"id": "own", **part}, {"id": "own", **url, **part}, {"id": "own", **url, name: None}]
    for body in bodies:
        assert code(await client.post(PATH, json=body, headers=ROOT)) == (403, "stdio_from_http", name)
    assert code(await client.patch(f"{PATH}/docs", json=part, headers=ROOT)) == (403, "stdio_from_http", name)
    assert await ids(client, ROOT) == ["docs"]
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "toolplug.audit"]
    assert [line["outcome"] for line in lines].count("stdio_from_http") == 4


@pytest.mark.requirement("H-trust-one-answer", "DISC-api-unknown", "C-8-add-http")
async def test_another_tenants_server_is_answered_like_none(client: AsyncClient) -> None:
    await added(client, "mine", DEAD_SERVER)
    assert (await ids(client, ROOT), await ids(client, EVE)) == (["docs", "mine"], ["docs"])
    assert (await shown(client, "docs"))["transport"]["headers"] == {"X-Token": "***"}
    assert "transport" not in await shown(client, "docs", EVE), "it administers its own tenant"
    requests: list[tuple[str, str, Json | None]] = [
        ("GET", "", None),
        ("PATCH", "", {"enabled": False}),
        ("DELETE", "", None),
        ("POST", "/discover", None),
        ("POST", "/accept", None),
    ]
    for method, rest, body in requests:
        answers: list[Json] = []
        for name in ("mine", "nope"):
            answer = await client.request(
                method, f"{PATH}/{name}{rest}", json=body, headers={**EVE, "X-Request-Id": "the-same"}
            )
            answers.append({"status": answer.status_code, **answer.json()})
        assert answers[0] == answers[1]
        assert (answers[0]["status"], answers[0]["error"]["code"]) == (404, "server_not_found")
    assert (await shown(client, "mine"))["enabled"]


@pytest.mark.requirement("C-8-add-http", "C-5-scope-admin", "C-5-scope-read", "H-trust-no-leak")
async def test_readers_see_what_was_found_and_only_administrators_how_it_is_reached(
    client: AsyncClient, source: str
) -> None:
    await client.post(f"{PATH}/docs/discover?wait=true", headers=ROOT)
    mine = await shown(client, "docs", READER)
    assert ("transport" in mine, mine["status"], mine["tools"][0]["name"]) == (False, "success", "echo")
    whole = await client.get(PATH, headers=ROOT)
    assert whole.json()["servers"][0]["transport"] == {"url": source, "headers": {"X-Token": "***"}}
    assert SECRET not in whole.text
    requests: list[tuple[str, str, Json | None]] = [
        ("POST", "", {"id": "new", "url": source}),
        ("PATCH", "/docs", {"enabled": False}),
        ("DELETE", "/docs", None),
        ("POST", "/docs/discover", None),
        ("POST", "/docs/accept", None),
    ]
    for method, rest, body in requests:
        for key in (READER, ALICE):
            answer = await client.request(method, PATH + rest, json=body, headers=key)
            assert code(answer)[:2] == (403, "insufficient_scope")
    assert (await client.get(PATH)).status_code == 401


@pytest.mark.requirement("C-8-in-file")
async def test_a_server_of_the_file_is_changed_in_its_rules_and_switched_and_nothing_else(client: AsyncClient) -> None:
    parts: list[Json] = [{"url": DEAD_SERVER}, {"headers": {}}, {"policy": "deny"}, {"discoveryTimeoutMs": 5}]
    for part in (*parts, {"offer": "search"}):
        answer = await client.patch(f"{PATH}/docs", json={"enabled": False, **part}, headers=ROOT)
        assert code(answer) == (409, "in_file", "id")
    assert code(await client.delete(f"{PATH}/docs", headers=ROOT)) == (409, "in_file", "id")
    assert (await shown(client, "docs"))["enabled"]
    changed = await client.patch(
        f"{PATH}/docs", json={"enabled": False, "tools": {"echo": {"policy": "ask"}}}, headers=ROOT
    )
    assert changed.status_code == 200
    assert (changed.json()["enabled"], changed.json()["toolPolicies"]) == (False, {"echo": "ask"})
    assert code(await client.post(f"{PATH}/docs/discover", headers=ROOT)) == (409, "server_disabled", "id")


@pytest.mark.requirement("DISC-on-change", "C-8-triggers", "C-8-add-http")
async def test_a_server_that_was_added_is_changed_and_found_again(client: AsyncClient, source: str) -> None:
    before = await added(client, "mine", DEAD_SERVER, query="?wait=true")
    changed = await client.patch(f"{PATH}/mine", json={"url": source, "policy": "allow"}, headers=ROOT)
    assert (changed.status_code, changed.json()["policy"]) == (200, "allow")
    assert changed.json()["configHash"] != before["configHash"]
    found = await client.post(f"{PATH}/mine/discover?wait=true", headers=ROOT)
    assert (found.json()["status"], found.json()["tools"][0]["policy"]) == ("success", "allow")
    same = await client.patch(f"{PATH}/mine", json={"tools": {"echo": "deny"}}, headers=ROOT)
    assert same.json()["configHash"] == found.json()["configHash"]
    assert (same.json()["status"], same.json()["tools"][0]["policy"]) == ("success", "deny")


@pytest.mark.requirement("C-9-tool-search")
async def test_a_server_is_added_and_changed_with_the_way_its_tools_are_offered(
    client: AsyncClient, source: str
) -> None:
    await added(client, "mine", source, query="?wait=true", offer="search", tools={"fails": {"offer": "always"}})
    offers = [await offers_of(client, "mine")]
    await client.patch(f"{PATH}/mine", json={"offer": "always"}, headers=ROOT)
    offers.append(await offers_of(client, "mine"))
    assert offers == [{"echo": "search", "fails": "always"}, {"echo": "always", "fails": "always"}]


async def offers_of(client: AsyncClient, server: str) -> dict[str, str]:
    """How two tools of a server are offered, as the catalog has it."""
    listed = (await client.get("/api/catalog", headers=ROOT)).json()["tools"]
    tools = {tool["name"].removeprefix(f"{server}/"): tool for tool in listed if tool.get("server") == server}
    return {name: tools[name].get("offer", "always") for name in ("echo", "fails")}


@pytest.mark.requirement("C-8-add-http")
async def test_a_server_that_was_added_can_be_removed(client: AsyncClient, source: str) -> None:
    await added(client, "mine", source, query="?wait=true")
    gone = await client.delete(f"{PATH}/mine", headers=ROOT)
    assert (gone.status_code, gone.content) == (204, b"")
    assert code(await client.get(f"{PATH}/mine", headers=ROOT)) == (404, "server_not_found", "id")
    assert await ids(client, ROOT) == ["docs"]


@pytest.mark.requirement("C-8-add-http", "C-1-server-id")
@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"id": "Mine"}, (422, "invalid_server_id", "id")),
        ({"id": "mine\n"}, (422, "invalid_server_id", "id")),
        ({"id": "docs"}, (409, "server_exists", "id")),
        ({"url": "file:///etc/passwd"}, (422, "invalid_url", "url")),
        ({"url": "http://user:pw@127.0.0.1/mcp"}, (422, "invalid_url", "url")),
        ({"url": "http://[::1/mcp"}, (422, "invalid_url", "url")),
        ({"url": "http://127.0.0.1:99999/mcp"}, (422, "invalid_url", "url")),
        ({"url": "http://169.254.169.254/latest"}, (422, "address_refused", "url")),
        ({"headers": {"X": "a\nb"}}, (422, "invalid_header", "headers")),
        ({"headers": {"Host": "docs.example"}}, (422, "invalid_header", "headers")),
        ({"headers": {"content-length": "5"}}, (422, "invalid_header", "headers")),
        ({"headers": {"X": "a" * 32_768}}, (422, "invalid_header", "headers")),
        ({"headers": {f"X-{number}": "a" for number in range(101)}}, (422, "too_many", "headers")),
        ({"headers": {"X": 1}}, (400, "invalid_request", "headers.X")),
        ({"policy": "maybe"}, (400, "invalid_request", "policy")),
        ({"tools": {"a": "maybe"}}, (400, "invalid_request", "tools.a")),
        ({"discoveryTimeoutMs": 0}, (400, "invalid_request", "discoveryTimeoutMs")),
        ({"discoveryTimeoutMs": 600_001}, (400, "invalid_request", "discoveryTimeoutMs")),
        ({"enabled": "yes"}, (400, "invalid_request", "enabled")),
        ({"pin": True}, (400, "invalid_request", "pin")),
    ],
)
async def test_a_server_that_cannot_be_is_refused_by_the_part_at_fault(
    client: AsyncClient, body: Json, answer: tuple[int, str, str]
) -> None:
    whole = {"id": "mine", "url": "http://127.0.0.1:9/mcp", **body}
    assert code(await client.post(PATH, json=whole, headers=ROOT)) == answer
    assert await ids(client, ROOT) == ["docs"]


@pytest.mark.requirement("C-8-add-http")
async def test_bodies_that_are_none_are_refused(client: AsyncClient) -> None:
    for body in (b"", b"[]", b'"x"', b"{", b"{}"):
        answer = await client.post(PATH, content=body, headers={**ROOT, "Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    for body in ({"url": None}, {"id": "other"}, {"discoveryTimeoutMs": None}):
        assert (await client.patch(f"{PATH}/docs", json=body, headers=ROOT)).status_code == 400


@pytest.mark.requirement("C-8-add-http", "H-trust-audit-agrees")
async def test_each_change_is_one_line_of_the_audit_trail(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolplug.audit")
    await added(client, "mine", DEAD_SERVER, headers={"X-Key": "k3y"})
    await client.patch(f"{PATH}/mine", json={"enabled": False}, headers=ROOT)
    await client.delete(f"{PATH}/mine", headers=ROOT)
    await client.delete(f"{PATH}/docs", headers=ROOT)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "toolplug.audit"]
    told = [(line["event"], line["outcome"], line["principal"], line["target"]) for line in lines]
    assert told == [
        ("mcp_server.add", "done", "root", "mine"),
        ("mcp_server.change", "done", "root", "mine"),
        ("mcp_server.remove", "done", "root", "mine"),
        ("mcp_server.remove", "refused", "root", "docs"),
    ]
    assert "k3y" not in caplog.text


@pytest.mark.requirement("C-2-operator-url", "C-2-egress", "H-trust-urls")
async def test_only_the_operators_file_may_name_an_address_that_is_not_public(source: str) -> None:
    whole = settings(providers=None, mcp_servers={"docs": {"url": source}})
    async with open_host(whole, environ={}) as host, client_of(create_app(host)) as client:
        found = await client.post(f"{PATH}/docs/discover?wait=true", headers=ROOT)
        assert (found.status_code, found.json()["status"]) == (200, "success")
        body = {"id": "mine", "url": source}
        assert code(await client.post(PATH, json=body, headers=ROOT)) == (422, "address_refused", "url")
        assert await ids(client, ROOT) == ["docs"]


@pytest.mark.requirement("C-5-metric-server")
async def test_calls_of_a_servers_tools_are_counted_under_its_id(source: str) -> None:
    sections = {
        "mcp_servers": {"docs": {"url": source}},
        "toolsets": {"web": {"prefix": "web", "from": "mcp:docs"}},
        "agents": {"a": {"toolsets": ["web"]}},
    }
    async with (
        open_host(settings(providers=None, **sections), environ={}) as host,
        client_of(create_app(host)) as client,
    ):
        await client.post(f"{PATH}/docs/discover?wait=true", headers=ROOT)
        body = {"name": "web.echo", "arguments": {"text": "hi"}, "agent": "a"}
        called = await client.post("/v1/tool-calls", json=body, headers=ROOT)
        assert (called.json()["status"], called.json()["output"]) == ("success", "hi")
        shown = (await client.get("/metrics")).text
    labels = 'provider="mcp:docs",status="success",tool_name="echo"'
    assert f"antwort_builtin_tool_executions_total{{{labels}}} 1.0" in shown
