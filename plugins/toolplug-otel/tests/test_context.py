"""Spans of one trace: what the parent of a call's span is, and whose parent it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from toolplug import CallContext, FunctionProvider, Host, ToolCall, ToolExecutor, tool
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}


def headers(span: Any) -> dict[str, str]:
    """The W3C headers that name this span."""
    context = span.context
    state = {"tracestate": context.trace_state.to_header()} if context.trace_state else {}
    return {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}", **state}


def client_of(host: Host) -> AsyncClient:
    return AsyncClient(transport=ASGITransport(create_app(host)), base_url="http://localhost")


async def test_the_parent_is_the_span_of_the_headers_and_the_tool_gets_the_headers_of_its_own(recorder: Any) -> None:
    async with recorder.open() as traced:
        result = await traced.call("traced", CallContext(trace_context=PARENT))
        span = traced.span()
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}", span.parent.is_remote) == (
        TRACE,
        SPAN,
        True,
    )
    assert result.structured == headers(span)
    assert span.context.trace_state.to_header() == "vendor=1"
    assert f"{span.context.span_id:016x}" != SPAN


async def test_the_current_span_of_the_caller_goes_before_the_headers(recorder: Any) -> None:
    async with recorder.open() as traced:
        with traced.tracer_provider.get_tracer("application").start_as_current_span("chat"):
            await traced.call("add", CallContext(trace_context=PARENT), a=1, b=2)
            assert trace.get_current_span().get_span_context().is_valid
        call, chat = traced.spans()
        assert (chat.name, call.parent) == ("chat", chat.context)
        assert not trace.get_current_span().get_span_context().is_valid


async def test_a_parent_that_is_not_sampled_is_not_recorded_and_its_trace_goes_on(recorder: Any) -> None:
    parent = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
    async with recorder.open() as traced:
        result = await traced.call("traced", CallContext(trace_context=parent))
        assert traced.spans() == ()
        assert re.fullmatch(f"00-{TRACE}-(?!{SPAN})[0-9a-f]{{16}}-00", result.structured["traceparent"])
        assert [count for _, count in traced.durations()] == [1]


async def test_calls_over_http_continue_the_trace_of_the_request(recorder: Any) -> None:
    async with recorder.open() as traced:
        async with client_of(traced.host) as client:
            answer = await client.post("/v1/tool-calls", headers=PARENT, json={"name": "traced", "id": "c1"})
        span = traced.span()
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    assert answer.json()["structured"] == headers(span)


async def test_the_metric_has_the_tools_of_sessions_together(recorder: Any) -> None:
    async with recorder.open() as traced, client_of(traced.host) as client:
        created = (await client.post("/api/sessions", json={})).json()
        token = {"Authorization": f"Bearer {created['pluginToken']}"}
        body = {"pluginType": "table", "tools": [{"name": "lent"}]}
        await client.post(f"/api/sessions/{created['code']}/register-tools", json=body, headers=token)
        call = {"name": "lent", "session": created["code"], "timeoutMs": 20}
        answer = await client.post("/v1/tool-calls", json=call, headers=PARENT)
        span = traced.span()
    assert (span.name, span.attributes["error.type"]) == ("execute_tool lent", answer.json()["status"])
    assert f"{span.context.trace_id:032x}" == TRACE
    ((attributes, _),) = traced.durations()
    assert attributes["gen_ai.tool.name"] == "_session"


class Nesting(FunctionProvider):
    """Calls another tool of its host, and makes a span of its own."""

    tools_of_host: ToolExecutor
    tracer: trace.Tracer

    @tool
    async def nests(self, context: CallContext) -> str:
        """Add one and two by another tool."""
        with self.tracer.start_as_current_span("work"):
            return (await self.tools_of_host.execute(ToolCall("c2", "add", {"a": 1, "b": 2}), context)).output

    @tool
    def blocks(self) -> str:
        """Make a span in a thread."""
        with self.tracer.start_as_current_span("work"):
            return "done"


async def test_a_nested_call_and_the_tools_own_spans_are_children(recorder: Any) -> None:
    nesting = Nesting()
    async with recorder.open(more={"nesting": nesting}) as traced:
        nesting.tools_of_host = traced.tools
        nesting.tracer = traced.tracer_provider.get_tracer("provider")
        assert (await traced.call("nests")).output == "3"
        inner, work, outer = traced.spans()
        assert (await traced.call("blocks")).output == "done"
        work_in_thread, call = traced.spans()
    assert [span.name for span in (inner, work, outer)] == ["execute_tool add", "work", "execute_tool nests"]
    assert (inner.parent, work.parent, outer.parent) == (work.context, outer.context, None)
    assert (work_in_thread.parent, call.name) == (call.context, "execute_tool blocks")


SERVER = """
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("traced")


@server.tool()
async def passed(context: Context) -> dict[str, str]:
    meta = context.request_context.meta or {}
    return {key: value for key, value in meta.items() if key in ("traceparent", "tracestate")}


server.run("stdio")
"""


@pytest.mark.mcp
async def test_an_mcp_server_gets_the_trace_context_of_the_calls_span(recorder: Any, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    servers = {"remote": {"command": sys.executable, "args": [str(tmp_path / "server.py")], "prefix": "remote"}}
    async with recorder.open(mcp_servers=servers) as traced:
        async with client_of(traced.host) as client:
            await client.post("/api/mcp-servers/remote/discover?wait=true")
        result = await traced.call("remote.passed", CallContext(trace_context=PARENT))
        span = traced.span()
    assert (span.attributes["gen_ai.tool.type"], f"{span.context.trace_id:032x}") == ("extension", TRACE)
    assert result.structured == headers(span)


async def test_a_sampler_that_records_nothing_leaves_calls_as_they_are(recorder: Any) -> None:
    async with recorder.open(sampler=ALWAYS_OFF) as traced:
        assert (await traced.call("add", a=1, b=2)).output == "3"
        assert traced.spans() == ()
