"""Health, metrics, descriptions, the list of tools, and routes of providers."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.wire.callers import Caller

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]

FORMATS = ["chat", "responses", "anthropic", "mcp"]


def names_in(tools: list[dict[str, Any]]) -> list[str]:
    """The names of tools in any dialect."""
    return [tool.get("name") or tool["function"]["name"] for tool in tools]


async def test_each_process_is_alive_and_ready(nobody: httpx2.AsyncClient) -> None:
    for _ in range(6):
        assert (await nobody.get("/healthz")).json() == {"status": "ok"}
        ready = await nobody.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "reasons": []})


async def test_metrics_can_be_read(nobody: httpx2.AsyncClient, client: httpx2.AsyncClient) -> None:
    for _ in range(6):
        await client.post("/v1/tool-calls", json={"name": "hello"})
        await client.get("/v1/wire/otter")
    families = {family.name: family for family in text_string_to_metric_families((await nobody.get("/metrics")).text)}
    counted = families["antwort_builtin_tool_executions"].samples
    labels = [sample.labels for sample in counted if sample.labels.get("provider") == "hello" and sample.value >= 1]
    assert {"tool_name": "hello", "status": "success"}.items() <= labels[0].items()
    requests = families["antwort_builtin_api_requests"].samples
    assert any(sample.labels.get("path") == "/v1/wire/{name}" for sample in requests)


@pytest.mark.parametrize("part", ["/v1/tool-calls", "/api/sessions/{code}/stream", "/v1/responses", "/v1/wire/{name}"])
async def test_the_description_has_every_route(nobody: httpx2.AsyncClient, part: str) -> None:
    described = (await nobody.get("/v1/openapi.json")).json()
    assert described["openapi"].startswith("3.")
    assert part in described["paths"]


async def test_the_description_is_the_same_at_each_process(nobody: httpx2.AsyncClient) -> None:
    assert len({(await nobody.get("/v1/openapi.json")).content for _ in range(6)}) == 1


async def test_a_browser_that_has_the_module_is_not_sent_it_again(nobody: httpx2.AsyncClient) -> None:
    first = await nobody.get("/toolplug.js")
    assert "javascript" in first.headers["content-type"]
    for _ in range(4):
        again = await nobody.get("/toolplug.js", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_the_models_are_those_of_the_backend(client: httpx2.AsyncClient) -> None:
    assert [model["id"] for model in (await client.get("/v1/models")).json()["data"]] == ["obedient"]


@pytest.mark.parametrize("dialect", FORMATS)
async def test_tools_are_listed_in_a_dialect(client: httpx2.AsyncClient, dialect: str) -> None:
    answers = [await client.get(f"/v1/tools?format={dialect}") for _ in range(6)]
    assert len({answer.content for answer in answers}) == 1
    names = names_in(answers[0].json()["tools"])
    assert names[:3] == ["hello", "echo", "plus"]
    assert names[-1] == "read_result"
    assert "unseen" not in names
    assert "never" in names


@pytest.mark.parametrize("dialect", FORMATS)
async def test_a_list_that_a_client_has_is_not_sent_again(client: httpx2.AsyncClient, dialect: str) -> None:
    first = await client.get(f"/v1/tools?format={dialect}")
    for _ in range(4):
        again = await client.get(f"/v1/tools?format={dialect}", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_an_agents_tools_have_wire_names(client: httpx2.AsyncClient) -> None:
    for dialect in FORMATS:
        tools = (await client.get(f"/v1/tools?format={dialect}&agent=greeter")).json()["tools"]
        assert names_in(tools)[0] == "greet__hello"


@pytest.mark.parametrize("query", ["format=xml", "session=abc"])
async def test_a_wrong_question_for_tools_is_refused(client: httpx2.AsyncClient, query: str) -> None:
    answer = await client.get(f"/v1/tools?{query}")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request")


async def test_the_stream_of_tools_begins_with_all(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(30), client.stream("GET", "/v1/tools/stream") as stream:
        assert stream.status_code == 200
        data = [line.removeprefix("data: ") async for line in first_lines(stream) if line.startswith("data: ")]
    assert "hello" in json.dumps(json.loads(data[0]))


async def first_lines(stream: httpx2.Response) -> Any:
    """The lines of the first event."""
    async for line in stream.aiter_lines():
        if not line:
            return
        yield line


async def test_a_route_of_a_provider_has_the_tenant(client: httpx2.AsyncClient, tenant: str) -> None:
    for _ in range(3):
        assert (await client.get("/v1/wire/otter")).json() == {"name": "otter", "tenant": tenant}


async def test_a_route_of_a_provider_may_have_a_scope_of_its_own(caller: Caller) -> None:
    writer = await caller(scope="wire:write")
    answer = await writer.post("/v1/wire", content=b"12345")
    assert (answer.status_code, answer.json()) == (201, {"length": 5})


async def test_a_route_that_breaks_says_nothing_of_it(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/wire-broken")
    assert (answer.status_code, "secret" in answer.text) == (500, False)
    assert answer.json()["error"]["type"] == "server_error"


async def test_the_catalog_has_every_tool_and_its_policy(client: httpx2.AsyncClient) -> None:
    for _ in range(3):
        tools = {tool["name"]: tool for tool in (await client.get("/api/catalog")).json()["tools"]}
        assert (tools["hello"]["type"], tools["hello"]["callable"]) == ("native", True)
        assert [tools[name]["configuredPolicy"] for name in ("echo", "first", "never")] == ["allow", "ask", "deny"]


async def test_request_ids_of_callers_are_kept(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/tools", headers={"X-Request-Id": "mine-1"})
    assert re.fullmatch(r"[0-9a-zA-Z-]+", answer.headers["x-request-id"])
