"""Numbers out of range, too many levels and half characters, at every place of a body that takes any JSON."""

from __future__ import annotations

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE
from tests.http.session_plugin import Plugin, new_plugin, sessions_host, tool

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("C-5-out-of-range")]

ODD = {
    "a number out of range": "1e999",
    "a negative one": "-1e999",
    "a long integer": "9" * 4301,
    "a number inside": '{"a": [{"b": 1e999}]}',
    "lists in lists": "[" * 170 + "]" * 170,
    "objects in objects": '{"a":' * 170 + "1" + "}" * 170,
    "no number": "NaN",
    "half a character": r'"\ud800"',
    "a name of half a character": r'{"\ud800": 1}',
    "a zero": r'{"a\u0000b": "\u0000"}',
}

PLACES = {
    "/v1/tool-calls": ['{"name": "hello", "arguments": %s}', '{"name": "hello", "arguments": {"name": %s}}'],
    "/v1/responses": [
        '{"input": "hi", "tools": [{"type": "function", "name": "a", "parameters": %s}]}',
        '{"input": "hi", "tools": [{"type": "function", "name": "a", "parameters": {"default": %s}}]}',
        '{"input": "hi", "text": {"format": {"type": "json_schema", "name": "a", "schema": {"default": %s}}}}',
        '{"input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "more": %s}]}]}',
        '{"input": [{"role": "assistant", "content": "x", "more": %s}, {"role": "user", "content": "x"}]}',
        '{"input": [{"type": "reasoning", "summary": [], "more": %s}, {"role": "user", "content": "x"}]}',
        '{"input": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}", "extra_content": %s}]}',
        '{"input": "hi", "tool_choice": {"type": "function", "name": "a", "more": %s}}',
        '{"input": "hi", "metadata": {"a": %s}}',
        '{"input": "hi", "temperature": %s}',
        '{"input": %s}',
    ],
    "register-tools": [
        '{"pluginType": "t", "tools": [], "environment": {"a": %s}}',
        '{"pluginType": "t", "tools": [], "capabilities": [%s]}',
        '{"pluginType": "t", "tools": [{"name": "a", "inputSchema": {"type": "object", "default": %s}}]}',
        '{"pluginType": "t", "tools": [{"name": "a", "more": %s, "inputSchema": {"type": "object"}}]}',
    ],
    "update-tools": ['{"toolUpdates": {"added": [{"name": "b", "inputSchema": %s}]}}'],
    "tool-results": ['{"id": "x", "output": "a", "structured": %s}', '{"id": "x", "result": %s}'],
    "/api/mcp-servers": ['{"id": "m", "url": "http://127.0.0.1:9", "headers": %s}'],
    "/api/toolset-bindings/b": ['{"prefix": "a", "from": "provider:hello", "tools": %s}'],
    "/api/sessions": ['{"ttlSeconds": %s}', '{"metadata": %s}'],
    "/mcp": [
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hello", "arguments": %s}}',
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hello", "_meta": %s}}',
        '{"jsonrpc": "2.0", "id": %s, "method": "ping"}',
    ],
}
"""Routes, those of a session by their last part → bodies with a place for a value."""

UNREACHABLE = {"backend": {"base_url": "http://127.0.0.1:9/v1", "api_key": "none", "model": "m", "retries": 0}}


async def status_of(client: AsyncClient, plugin: Plugin, route: str, body: str) -> tuple[int, str]:
    of_session = not route.startswith("/")
    headers = {**(plugin.headers if of_session else ALICE), "Content-Type": "application/json"}
    method = "put" if route.startswith("/api/toolset-bindings") else "post"
    accept = {"Accept": "application/json, text/event-stream"}
    place = f"{plugin.place}/{route}" if of_session else route
    answer = await client.request(method, place, content=body.encode(), headers={**headers, **accept})
    return answer.status_code, answer.text


@pytest.mark.parametrize("route", PLACES)
async def test_what_json_cannot_carry_on_is_refused_and_no_fault_of_the_host(route: str) -> None:
    async with sessions_host(providers={"hello": {"enabled": True}}, responses=UNREACHABLE) as served:
        plugin = await new_plugin(served.client, tool("a"))
        for body in PLACES[route]:
            for name, value in ODD.items():
                status, text = await status_of(served.client, plugin, route, body.replace("%s", value))
                assert status < 500 or "backend_unreachable" in text, (body, name, text)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ('{"input": "x", "tools": [{"type": "function", "name": "a", "parameters": {"default": 1e999}}]}', "tools[0]"),
        ('{"input": [{"role": "user", "content": "x", "more": {"a": [1e999]}}]}', "input[0]"),
        ('{"input": "x", "tool_choice": {"type": "function", "name": "a", "b": 1e999}}', "tool_choice"),
    ],
)
async def test_a_request_that_no_models_server_can_be_sent_says_where(body: str, param: str) -> None:
    async with sessions_host(responses=UNREACHABLE) as served:
        headers = {**ALICE, "Content-Type": "application/json"}
        answer = await served.client.post("/v1/responses", content=body.encode(), headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", param)
    assert "a number out of range, or more than 160 levels" in error["message"]
