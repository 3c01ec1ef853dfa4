"""What travels over HTTP, as a client sees it that is not the SDK's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from httpx2 import AsyncClient, Response
from tests.http.conftest import ALICE, BOB
from tests.mcp.conftest import settings
from tests.mcp.test_tools import WAIT_S

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("C-5-mcp")]

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
INTRODUCTION = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
SAY = {"name": "say", "arguments": {"text": "hello"}}


@pytest.fixture
async def alice(url: str) -> AsyncIterator[AsyncClient]:
    accepted = {"Accept": "application/json, text/event-stream"}
    async with AsyncClient(base_url=url, headers={**ALICE, **accepted}, timeout=WAIT_S) as client:
        yield client


def message(method: str, params: object = None, id: object = 1) -> dict[str, object]:  # noqa: A002
    fields = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return {name: value for name, value in fields.items() if value is not None}


def modern(method: str, **params: Any) -> dict[str, Any]:
    """A request of the newer era, as arguments of `post`."""
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return {"headers": headers, "json": message(method, {**params, "_meta": {**meta, **params.get("_meta", {})}})}


async def introduced(client: AsyncClient, path: str = "/mcp") -> dict[str, str]:
    """The header of a client of the older era that has introduced itself."""
    answered = await client.post(path, json=message("initialize", INTRODUCTION))
    assert answered.status_code == 200
    return {"Mcp-Session-Id": answered.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}


def error(answered: Response) -> tuple[int, int]:
    return answered.status_code, answered.json()["error"]["code"]


async def test_an_answer_without_anything_to_tell_is_json_with_the_requests_id(alice: AsyncClient) -> None:
    called = await alice.post("/mcp", **modern("tools/call", **SAY), params={"agent": ""})
    assert called.headers["content-type"] == "application/json"
    assert called.headers["x-request-id"]
    assert called.json()["id"] == 1
    assert called.json()["result"]["content"] == [{"type": "text", "text": "hello"}]


async def test_an_answer_with_progress_is_a_stream_that_ends_with_it(alice: AsyncClient) -> None:
    counts = modern("tools/call", name="counts", arguments={"upto": 1}, _meta={"progressToken": "p"})
    called = await alice.post("/mcp", **counts)
    assert called.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in called.text.splitlines() if line.startswith("data: ")]
    progress = {"progressToken": "p", "progress": 1, "total": 1, "message": "number 1"}
    assert events[0] == {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
    assert [event.get("id") for event in events] == [None, 1]


async def test_a_client_that_takes_no_stream_gets_the_answer_alone(alice: AsyncClient) -> None:
    counts = modern("tools/call", name="counts", arguments={"upto": 3}, _meta={"progressToken": "p"})
    counts["headers"]["Accept"] = "application/json"
    called = await alice.post("/mcp", **counts)
    assert called.json()["result"]["content"] == [{"type": "text", "text": "3"}]
    listen = modern("subscriptions/listen", notifications={})
    listen["headers"]["Accept"] = "application/json"
    assert (await alice.post("/mcp", **listen)).status_code == 406


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{", -32700), (b"[]", -32600), (b"{}", -32600), (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600)],
)
async def test_what_is_no_message_is_refused(alice: AsyncClient, body: bytes, code: int) -> None:
    assert error(await alice.post("/mcp", content=body, headers={"Content-Type": "application/json"})) == (400, code)


async def test_a_request_whose_headers_say_something_else_is_refused(alice: AsyncClient) -> None:
    mismatched = modern("tools/call", **SAY)
    mismatched["headers"]["Mcp-Name"] = "move"
    assert error(await alice.post("/mcp", **mismatched)) == (400, -32020)
    unspoken = modern("tools/list")
    unspoken["headers"]["MCP-Protocol-Version"] = "2099-01-01"
    unspoken["json"]["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01"
    refused = await alice.post("/mcp", **unspoken)
    assert error(refused) == (400, -32022)
    assert refused.json()["error"]["data"]["supported"] == [MODERN]
    assert error(await alice.post("/mcp", **modern("tools/dance"))) == (404, -32601)


async def test_a_notification_is_taken_without_an_answer(alice: AsyncClient) -> None:
    known = await introduced(alice)
    for headers in (known, {"MCP-Protocol-Version": MODERN}):
        taken = await alice.post("/mcp", json=message("notifications/anything", id=None), headers=headers)
        assert (taken.status_code, taken.content) == (202, b"")


async def test_a_client_of_the_older_era_must_have_introduced_itself(alice: AsyncClient, url: str) -> None:
    listing = message("tools/list")
    assert error(await alice.post("/mcp", json=listing)) == (400, -32600)
    known = await introduced(alice)
    assert (await alice.post("/mcp", json=listing, headers=known)).status_code == 200
    assert error(await alice.post("/mcp", json=listing, headers={"Mcp-Session-Id": "nobody"})) == (404, -32600)
    assert error(await alice.post("/mcp?agent=other", json=listing, headers=known)) == (404, -32600)
    async with AsyncClient(base_url=url, headers=BOB, timeout=WAIT_S) as bob:
        assert error(await bob.post("/mcp", json=listing, headers=known)) == (404, -32600)


async def test_a_client_of_the_older_era_ends_what_it_began(alice: AsyncClient) -> None:
    known = await introduced(alice)
    async with alice.stream("GET", "/mcp", headers=known) as stream:
        assert (await alice.delete("/mcp", headers=known)).status_code == 204
        assert [line async for line in stream.aiter_lines() if line] == []
    assert error(await alice.post("/mcp", json=message("tools/list"), headers=known)) == (404, -32600)


async def test_a_second_stream_of_a_client_takes_the_place_of_the_first(alice: AsyncClient) -> None:
    known = await introduced(alice)
    async with alice.stream("GET", "/mcp", headers=known) as first:
        assert first.status_code == 200
        async with alice.stream("GET", "/mcp", headers=known) as second:
            assert second.status_code == 200
            assert [line async for line in first.aiter_lines() if line] == []
            await alice.delete("/mcp", headers=known)


async def test_a_stream_that_opens_after_a_change_tells_of_it(alice: AsyncClient) -> None:
    created = (await alice.post("/api/sessions")).json()
    path, plugin = f"/api/sessions/{created['code']}", {"Authorization": f"Bearer {created['pluginToken']}"}
    known = await introduced(alice, f"{path}/mcp")
    await alice.post(f"{path}/mcp", json=message("tools/list"), headers=known)
    lent = {"pluginType": "table", "tools": [{"name": "lent", "inputSchema": {"type": "object"}}]}
    assert (await alice.post(f"{path}/register-tools", json=lent, headers=plugin)).status_code == 201
    async with alice.stream("GET", f"{path}/mcp", headers=known) as stream:
        lines = stream.aiter_lines()
        while "list_changed" not in await anext(lines):
            pass


@pytest.mark.parametrize(
    ("accept", "status", "kind"),
    [("application/json, text/event-stream", 200, "text/event-stream"), ("application/json", 202, None)],
)
async def test_a_cancelled_request_of_the_older_era_gets_no_answer(
    alice: AsyncClient, accept: str, status: int, kind: str | None
) -> None:
    known = {**await introduced(alice), "Accept": accept}
    waiting = asyncio.create_task(alice.post("/mcp", json=message("tools/call", {"name": "waits"}, 7), headers=known))
    await alice.post("/mcp", json=message("tools/call", {"name": "seen_waiting"}), headers=known)
    cancelled = message("notifications/cancelled", {"requestId": 7}, id=None)
    assert (await alice.post("/mcp", json=cancelled, headers=known)).status_code == 202
    ended = await waiting
    assert (ended.status_code, ended.content) == (status, b"")
    if kind is not None:
        assert ended.headers["content-type"].partition(";")[0] == kind


async def test_an_answer_that_nobody_waits_for_is_dropped(alice: AsyncClient) -> None:
    known = await introduced(alice)
    for answer in ({"result": {"action": "accept"}}, {"error": {"code": -1, "message": "no"}}):
        taken = await alice.post("/mcp", json={"jsonrpc": "2.0", "id": "toolplug-1", **answer}, headers=known)
        assert (taken.status_code, taken.content) == (202, b"")


async def test_what_has_no_stream_takes_posts_only(alice: AsyncClient) -> None:
    refused = await alice.get("/mcp", headers={"MCP-Protocol-Version": MODERN})
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert (await alice.get("/mcp")).status_code == 400
    assert (await alice.put("/mcp")).status_code == 405
    assert (await alice.head("/mcp")).status_code == 405


async def test_the_doors_are_those_of_every_route(alice: AsyncClient, url: str) -> None:
    said = modern("tools/call", **SAY)
    large = modern("tools/call", name="say", arguments={"text": "x" * 2**20})
    assert (await alice.post("/mcp", **large)).status_code == 413
    said["headers"]["Content-Type"] = "text/plain"
    assert (await alice.post("/mcp", **said)).status_code == 415
    said = modern("tools/call", **SAY)
    said["headers"]["Host"] = "elsewhere.example"
    assert (await alice.post("/mcp", **said)).status_code == 421
    said = modern("tools/call", **SAY)
    said["headers"]["Origin"] = "https://elsewhere.example"
    assert (await alice.post("/mcp", **said)).json()["error"]["code"] == "origin_not_allowed"
    for key, status in ((None, 401), ("wrong", 401), ("reader-key", 403)):
        said = modern("tools/call", **SAY)
        headers = {} if key is None else {"X-API-Key": key}
        async with AsyncClient(base_url=url, headers=headers, timeout=WAIT_S) as caller:
            assert (await caller.post("/mcp", **said)).status_code == status


PAGES = settings(http={"allowed_origins": ["https://page.example"]})


@pytest.mark.requirement("C-5-cors")
@pytest.mark.parametrize("configured", [PAGES])
async def test_a_page_of_a_listed_origin_may_speak_the_protocol(alice: AsyncClient) -> None:
    page = {"Origin": "https://page.example"}
    asked = {**page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "mcp-session-id"}
    preflight = await alice.options("/mcp", headers=asked)
    assert preflight.status_code == 204
    assert {"Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"} <= set(
        preflight.headers["access-control-allow-headers"].split(", ")
    )
    answered = await alice.post("/mcp", json=message("initialize", INTRODUCTION), headers=page)
    assert "Mcp-Session-Id" in answered.headers["access-control-expose-headers"]


async def test_an_agent_is_named_by_the_query_or_a_header_and_one_that_may_not_be_had_is_refused(
    url: str, alice: AsyncClient
) -> None:
    whose = modern("tools/list")
    assert (await alice.post("/mcp?agent=nobody", **whose)).json()["result"]["tools"] == []
    whose["headers"]["X-Toolplug-Agent"] = "nobody"
    assert (await alice.post("/mcp", **whose)).json()["result"]["tools"] == []
    async with AsyncClient(base_url=url, headers={"X-API-Key": "two-agents-key"}, timeout=WAIT_S) as two:
        refused = await two.post("/mcp", **modern("tools/list"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "agent_required")


WITHOUT_SDK = """
import asyncio, sys
from httpx2 import ASGITransport, AsyncClient
from toolplug import open_host
from toolplug.http import create_app

async def main():
    async with open_host({"store": "memory://", "providers": {}}, environ={}) as host:
        transport = ASGITransport(create_app(host), client=("127.0.0.1", 1))
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.get("/v1/tools")
            print("mcp" in sys.modules)
            sys.modules["mcp_types"] = None
            refused = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            print(refused.status_code, refused.json()["error"]["code"])

asyncio.run(main())
"""


def test_a_host_that_no_client_asks_imports_nothing_for_it_and_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SDK], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["False", "503 not_installed", ""]


@pytest.mark.parametrize("path", ["/mcp/", "/mcp"])
async def test_the_url_may_end_with_a_slash(alice: AsyncClient, path: str) -> None:
    known = await introduced(alice, path)
    called = await alice.post(path, json=message("tools/call", SAY), headers=known)
    assert called.json()["result"]["content"] == [{"type": "text", "text": "hello"}]
    assert (await alice.delete(path, headers=known)).status_code == 204


@pytest.mark.parametrize("odd", [None, [], "x", 5, {"toolplug/approval": 5, "traceparent": []}])
@pytest.mark.requirement("C-5-optional-null")
async def test_an_optional_field_of_another_kind_is_as_if_absent(alice: AsyncClient, odd: object) -> None:
    known = await introduced(alice)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**SAY, "_meta": odd}}
    called = await alice.post("/mcp", json=call, headers=known)
    assert called.status_code == 200
    if odd is None or isinstance(odd, dict):
        assert called.json()["result"]["content"] == [{"type": "text", "text": "hello"}]
    else:
        assert called.json()["error"]["code"] == -32602


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
async def test_an_empty_cursor_is_none(alice: AsyncClient, method: str) -> None:
    known = await introduced(alice)
    first = await alice.post("/mcp", json=message(method), headers=known)
    for params in ({"cursor": ""}, {"cursor": None}, {"_meta": None}):
        again = await alice.post(
            "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers=known
        )
        assert again.json() == first.json()
