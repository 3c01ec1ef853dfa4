"""The caller's W3C trace context: taken from HTTP headers and MCP `_meta`, and readable wherever the call goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE, client_of, settings
from tests.http.event_talk import talking
from tests.http.session_plugin import new_plugin, sessions_host, tool

from toolplug import CallContext, FunctionProvider, open_host
from toolplug import tool as provider_tool
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-6-trace-context")]

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"
MODERN = "2026-07-28"

Headers = list[tuple[str, str]]


class Traced(FunctionProvider):
    """One tool."""

    @provider_tool
    async def traced(self, context: CallContext) -> dict[str, str]:
        """Return the trace context of the call."""
        return dict(context.trace_context)


@pytest.fixture
async def alice() -> AsyncIterator[AsyncClient]:
    async with (
        open_host(settings(providers=None), providers={"traced": Traced()}, environ={}) as host,
        client_of(create_app(host)) as client,
    ):
        client.headers.update(ALICE)
        yield client


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ([], {}),
        ([("traceparent", PARENT)], {"traceparent": PARENT}),
        ([("Traceparent", f" {PARENT} "), ("tracestate", "a=1")], {"traceparent": PARENT, "tracestate": "a=1"}),
        (
            [("tracestate", "a=1"), ("traceparent", PARENT), ("tracestate", "b=2")],
            {"traceparent": PARENT, "tracestate": "a=1,b=2"},
        ),
        ([("traceparent", PARENT), ("tracestate", "a=1\x7f")], {"traceparent": PARENT}),
        ([("tracestate", "a=1")], {}),
        ([("traceparent", PARENT.upper()), ("tracestate", "a=1")], {}),
        ([("traceparent", PARENT), ("traceparent", OTHER)], {}),
    ],
)
async def test_a_tool_reads_the_valid_headers_of_its_call(
    alice: AsyncClient, headers: Headers, seen: Mapping[str, str]
) -> None:
    answer = await alice.post("/v1/tool-calls", headers=[*ALICE.items(), *headers], json={"name": "traced"})
    assert (answer.status_code, answer.json()["structured"]) == (200, seen)


@pytest.mark.parametrize(
    ("headers", "meta", "seen"),
    [
        ({"traceparent": PARENT, "tracestate": "a=1"}, {}, {"traceparent": PARENT, "tracestate": "a=1"}),
        ({"traceparent": PARENT, "tracestate": "a=1"}, {"traceparent": OTHER}, {"traceparent": OTHER}),
        ({}, {"traceparent": OTHER, "tracestate": "b=2"}, {"traceparent": OTHER, "tracestate": "b=2"}),
        ({"traceparent": PARENT}, {"traceparent": 7, "tracestate": "b=2"}, {"traceparent": PARENT}),
    ],
)
async def test_the_meta_of_an_mcp_request_goes_before_its_headers(
    alice: AsyncClient, headers: dict[str, str], meta: dict[str, object], seen: Mapping[str, str]
) -> None:
    meta |= {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    named = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "traced", **headers}
    params = {"name": "traced", "arguments": {}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await alice.post("/mcp", headers=named, json=body)
    assert answer.json()["result"]["structuredContent"] == seen


@pytest.mark.parametrize("wait", [True, False])
async def test_an_application_is_sent_the_trace_context_of_a_call_of_its_session(wait: bool) -> None:
    async with sessions_host() as served:
        plugin = await new_plugin(served.client, tool("add"))
        async with talking(served.app, f"{plugin.place}/stream", plugin.headers) as stream:
            await stream.until("connected")
            for trace in ({"traceparent": PARENT, "tracestate": "a=1"}, {"traceparent": PARENT}, {}):
                body: dict[str, Any] = {"tool": "add", "id": "c1", "wait": wait}
                posting = served.client.post(f"{plugin.place}/tool-calls", headers={**ALICE, **trace}, json=body)
                calling = asyncio.create_task(posting)
                request = await stream.until("tool-request")
                assert {key: value for key, value in request.data.items() if key.startswith("trace")} == trace
                await plugin.answer(request.data["id"], result=1)
                await calling
