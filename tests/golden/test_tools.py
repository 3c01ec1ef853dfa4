"""Tools as they are listed and called, their providers, and the routes that providers bring."""

from __future__ import annotations

import asyncio

import pytest
from tests.golden.conftest import DESK, KEYS, Opened
from tests.golden.wire import Wire

pytestmark = pytest.mark.anyio

CALLS = "/v1/tool-calls"
STREAMED = {"accept": "text/event-stream"}
FORMATS = ("chat", "responses", "anthropic", "mcp")
TOOLSETS = """
toolsets:
  office: {prefix: office, from: provider:desk}
  second: {prefix: second, from: provider:desk}
agents:
  researcher: {toolsets: [office]}
  writer: {}
"""
RULES = """
providers:
  desk:
    enabled: true
    tools:
      move: ask
      fails: deny
      panics: disable
      echo: {limits: {rate: 1/hour}}
      waits: {limits: {timeout: 20ms}}
      waits_to_go: {limits: {max_concurrency: 1}}
      exits: {limits: {breaker: {failures: 1, open_for: 1h}}}
      long_text: {limits: {max_result_bytes: 100}}
      own_result: {tenants: [t2]}
"""


async def call(wire: Wire, name: str, arguments: object = None, /, by: str = "alice-key", **more: object) -> None:
    """Call a tool and record how it ends."""
    given = {} if arguments is None else {"arguments": arguments}
    await wire.post(CALLS, by, {"id": "c1", "name": name, **given, **more})


async def test_the_list_of_tools(opened: Opened) -> None:
    hello = "\n  hello: {enabled: true}\n"
    async with opened("tools", KEYS + DESK.rstrip() + hello + TOOLSETS) as wire:
        first = await wire.get("/v1/tools", "alice-key")
        for form in FORMATS:
            await wire.get(f"/v1/tools?format={form}", "alice-key")
        await wire.get("/v1/tools", "alice-key", headers={"if-none-match": first.header("etag")})
        await wire.get("/v1/tools", "alice-key", headers={"if-none-match": f'"other", W/{first.header("etag")}'})
        for form in FORMATS:
            await wire.get(f"/v1/tools?format={form}&agent=researcher", "alice-key")
        for query in ("agent=nobody", "agent=researcher&toolsets=second", "agent=researcher&toolsets=office,none"):
            await wire.get(f"/v1/tools?{query}", "alice-key")
        for query in ("format=xml", "session=ABCDEFGH", "session=abc", "unknown=1", "format=chat&format=mcp"):
            await wire.get(f"/v1/tools?{query}", "alice-key")
        await wire.get("/v1/tools", "one-agent-key")


async def test_every_way_a_call_ends(opened: Opened) -> None:
    async with opened("tool_calls") as wire:
        wire.title("Success")
        await call(wire, "echo", {"text": "otters – «ü»"})
        await call(wire, "echo", '{"text": "otters"}')
        for name in ("values", "nothing", "python_values", "own_result"):
            await call(wire, name)
        await call(wire, "move", {"to": {"x": 1}, "way": "fast", "steps": [1, 2]})
        await call(wire, "whoami", options={"depth": 3})
        wire.title("Errors of tools")
        for name in ("fails", "own_error", "not_json", "panics", "exits", "away"):
            await call(wire, name)
        wire.title("Arguments")
        for arguments in (
            "[1]",
            "{",
            '{"text": 1}',
            {"text": 1},
            {},
            "",
            {"text": "x", "more": 1},
            '{"text":"a","text":"b"}',
        ):
            await call(wire, "echo", arguments)
        await call(wire, "move", {"to": {"x": "left", "y": 1.5}, "way": "sideways", "steps": [1, "two", None]})
        await call(wire, "echo", {"text": "x" * 1001})
        wire.title("Unknown tools")
        for name in ("nope", "ech", "no.pe", ".x", "fs.", "desk.echo", "desk__echo"):
            await call(wire, name)
        wire.title("Timeouts")
        await call(wire, "waits", timeoutMs=5)


async def test_calls_that_rules_refuse(opened: Opened) -> None:
    async with opened("tool_rules", KEYS + RULES) as wire:
        wire.title("Policies")
        await call(wire, "fails")
        await call(wire, "panics")
        await call(wire, "own_result")
        await call(wire, "own_result", by="bob-key")
        wire.title("Limits")
        await call(wire, "echo", {"text": "1"})
        await call(wire, "echo", {"text": "2"})
        await call(wire, "waits")
        await call(wire, "exits")
        await call(wire, "exits")
        await call(wire, "long_text")
        body = {"id": "c1", "name": "waits_to_go"}
        async with wire.stream(CALLS, "alice-key", method="POST", body=body, accept="text/event-stream") as running:
            await running.until("progress")
            await call(wire, "waits_to_go")
            await call(wire, "lets_go")
            await running.until("result")
        wire.title("The list")
        await wire.get("/v1/tools", "alice-key")


async def test_calls_that_are_no_requests(opened: Opened) -> None:
    async with opened("tool_call_requests") as wire:
        for body in (
            b"{",
            b"[]",
            b'"text"',
            b"\xff",
            b"null",
            b'{"name": "\\ud800"}',
            b'{"name": "echo", "name": "echo"}',
            b'{"name": NaN}',
            b"[" * 2000,
            b"{}",
            b'{"name": ""}',
            b'{"name": 7}',
            b'{"name": "%s"}' % (b"x" * 257),
            b'{"name": "echo", "id": 7}',
            b'{"name": "echo", "arguments": [1]}',
            b'{"name": "echo", "arguments": null}',
            b'{"name": "echo", "timeoutMs": 0}',
            b'{"name": "echo", "timeoutMs": 300001}',
            b'{"name": "echo", "timeoutMs": true}',
            b'{"name": "echo", "options": []}',
            b'{"name": "echo", "timeoutms": 5}',
            b'{"name": "echo", "one": 5, "two": 6, "timeoutMs": "1"}',
            b'{"name": "echo", "session": "abc"}',
            b'{"name": "echo", "session": "ABCDEFGH"}',
            b'{"name": "whoami", "options": {"depth": 0}}',
            b'{"name": "whoami", "options": {"deep": 1}}',
            b'{"name": "echo", "options": {"depth": 1}}',
            b'{"name": "echo", "approval": "none"}',
            b'{"name": "echo", "agent": "nobody"}',
        ):
            await wire.post(CALLS, "alice-key", body)
        await wire.post(CALLS, "alice-key")
        await wire.post(CALLS, "alice-key", {"name": 1}, headers=STREAMED)
        await wire.post(f"{CALLS}?agent=researcher", "alice-key", {"id": "c1", "name": "lets_go"})


async def test_a_call_as_a_stream(opened: Opened) -> None:
    async with opened("call_streams") as wire:
        counts = {"id": "c1", "name": "counts", "arguments": {"upto": 3}}
        await wire.post(CALLS, "alice-key", counts, headers=STREAMED)
        for accept in ("application/json", "*/*", "text/*", "text/event-stream;q=0", "image/png", ""):
            await wire.post(CALLS, "alice-key", {"id": "c1", "name": "lets_go"}, headers={"accept": accept})
        for name in ("fails", "panics", "nope", "values"):
            await wire.post(CALLS, "alice-key", {"id": "c1", "name": name}, headers=STREAMED)
        await wire.post(CALLS, "alice-key", {"id": "c1", "name": "waits", "timeoutMs": 5}, headers=STREAMED)


async def test_calls_with_an_idempotency_key(opened: Opened) -> None:
    async with opened("idempotency") as wire:
        keyed = {"idempotency-key": "key-1"}
        echo = {"id": "c1", "name": "echo", "arguments": {"text": "x"}}
        wire.title("Replays")
        for headers in (keyed, keyed, keyed | STREAMED):
            await wire.post(CALLS, "alice-key", echo, headers=headers)
        await wire.post(CALLS, "alice-key", echo | {"id": "c2"}, headers=keyed)
        await wire.post(CALLS, "alice-key", echo | {"arguments": {"text": "y"}}, headers=keyed)
        await wire.post(CALLS, "alice-key", echo | {"arguments": {"text": "y"}}, headers=keyed | STREAMED)
        await wire.post(CALLS, "bob-key", echo | {"name": "whoami", "arguments": {}}, headers=keyed)
        wire.title("Other results")
        for name in ("fails", "panics", "nope"):
            for _ in range(2):
                await wire.post(CALLS, "alice-key", {"id": "c1", "name": name}, headers={"idempotency-key": name})
        wire.title("While the first one runs")
        waits = {"id": "c1", "name": "waits_to_go"}
        named = {"idempotency_key": "key-2", "accept": "text/event-stream"}
        async with wire.stream(CALLS, "alice-key", method="POST", body=waits, **named) as running:
            await running.until("progress")
            await wire.post(CALLS, "alice-key", waits, headers={"idempotency-key": "key-2"})
            await wire.post(CALLS, "alice-key", waits, headers=STREAMED | {"idempotency-key": "key-2"})
            await call(wire, "lets_go")
            await running.until("result")
        wire.title("Keys that are none")
        for key in ("", "x" * 256, "ü", "with space"):
            await wire.post(CALLS, "alice-key", echo, headers={"idempotency-key": key})


async def test_providers_and_their_switches(opened: Opened) -> None:
    hello = "\n  hello: {enabled: false}\n  spare: {type: desk, enabled: false}\n"
    async with opened("providers", KEYS + DESK.rstrip() + hello) as wire:
        await wire.get("/v1/providers", "alice-key")
        for action in ("disable", "disable", "enable", "enable"):
            await wire.post(f"/v1/providers/desk/{action}", "root-key")
        await wire.post("/v1/providers/hello/enable", "root-key")
        await wire.get("/v1/tools?format=responses", "alice-key")
        await wire.post("/v1/providers/desk/disable", "root-key")
        await call(wire, "echo", {"text": "x"})
        await wire.get("/v1/desk", "alice-key")
        await wire.get("/v1/providers", "reader-key")
        await wire.post("/v1/providers/none/enable", "root-key")
        await wire.post("/v1/providers/none/disable", "root-key")
        wire.title("Reload")
        await wire.post("/v1/reload", "root-key")
        text = wire.file.read_text("utf-8")
        wire.file.write_text(text.replace("hello: {enabled: false}", "hello: {enabled: true}"), "utf-8")
        await wire.post("/v1/reload", "root-key")
        await wire.post("/v1/reload", "root-key")
        wire.file.write_text(text.replace("  desk: {", "  desk: {color: red, colour: blue, "), "utf-8")
        await wire.post("/v1/reload", "root-key")
        await wire.post("/v1/providers/spare/enable", "root-key")
        wire.file.write_text("providers: [", "utf-8")
        await wire.post("/v1/reload", "root-key")
        wire.file.unlink()
        await wire.post("/v1/reload", "root-key")


async def test_routes_of_providers(opened: Opened) -> None:
    async with opened("provider_routes") as wire:
        await wire.get("/v1/desk", "alice-key")
        await wire.ask("HEAD", "/v1/desk", "alice-key")
        await wire.post("/v1/desk", "alice-key", b"12345")
        for path in ("/v1/desk/a%20b", "/v1/desk/", "/v1/desk/x?y=1", "/v1/plain/a/b", "/v1/plain/"):
            await wire.get(path, "alice-key")
        await wire.ask("PUT", "/v1/plain/x", "alice-key", body=b"x")
        await wire.ask("PATCH", "/v1/plain/x", "alice-key")
        await wire.ask("PUT", "/v1/desk", "alice-key")
        await wire.ask("PUT", "/v1/desk")
        await wire.ask("OPTIONS", "/v1/desk", "alice-key")
        await wire.ask("DELETE", "/v1/desk/3", "alice-key")
        await wire.ask("DELETE", "/v1/desk/3", "keeper-key")
        await wire.ask("DELETE", "/v1/desk/three", "keeper-key")
        for path in ("/v1/open", "/v1/chunks", "/v1/not-json"):
            await wire.get(path, "alice-key")
        for how in ("raises", "exits", "gone", "busy", "teapot", "unknown"):
            await wire.get(f"/v1/broken/{how}", "alice-key")


async def test_the_metrics_of_what_was_done(opened: Opened) -> None:
    async with opened("metrics", KEYS + DESK + "metrics: {namespace: golden}\n") as wire:
        await call(wire, "echo", {"text": "x"})
        for name in ("echo", "fails", "panics", "nope"):
            await call(wire, name)
        await call(wire, "waits", timeoutMs=5)
        await wire.get("/v1/desk", "alice-key")
        await wire.get("/v1/desk/x", "alice-key")
        await wire.get("/v1/desk")
        await wire.ask("PUT", "/v1/desk", "alice-key")
        await wire.get("/v1/broken/raises", "alice-key")
        await wire.get("/nowhere", "alice-key")
        await wire.post("/api/sessions", "alice-key")
        for _ in range(50):  # the cancelled tool ends within a few turns of the loop
            await asyncio.sleep(0)
        await wire.get("/metrics")


async def test_explanations(opened: Opened) -> None:
    async with opened("explain", KEYS + RULES + TOOLSETS) as wire:
        for tool in ("echo", "move", "fails", "panics", "own_result", "nope", "ech", "office.echo"):
            await wire.get(f"/v1/explain?tool={tool}", "root-key")
        for query in (
            "tool=office.echo&agent=researcher",
            "tool=echo&agent=researcher",
            "tool=office.move&agent=nobody",
            "agent=researcher",
            "",
            "tool=",
            "tool=echo&session=ABCDEFGH",
            "tool=echo&session=abc",
        ):
            await wire.get(f"/v1/explain?{query}", "root-key")


async def test_approvals(opened: Opened) -> None:
    rules = "providers: {desk: {enabled: true, tools: {move: ask, echo: ask}}}"
    async with opened("approvals", KEYS + rules) as wire:
        move = {"id": "c1", "name": "move", "arguments": {"to": {"x": 1}}}
        wire.title("Approve")
        await wire.get("/v1/approvals", "judge-key")
        ticket = await approval_of(wire, move)
        await wire.get("/v1/approvals", "judge-key")
        await wire.get("/v1/approvals", "bob-key")
        await wire.post(CALLS, "alice-key", move | {"approval": ticket})
        for body in ({}, {"decision": "maybe"}, {"decision": "approve", "more": 1}, {"decision": "approve"}):
            await wire.post(f"/v1/approvals/{ticket}", "judge-key", body)
        await wire.post(f"/v1/approvals/{ticket}", "judge-key", {"decision": "deny"})
        await wire.get("/v1/approvals", "judge-key")
        await wire.post(CALLS, "caller-key", move | {"approval": ticket})
        await wire.post(CALLS, "alice-key", move | {"approval": ticket, "arguments": {"to": {"x": 2}}})
        for _ in range(2):
            await wire.post(CALLS, "alice-key", move | {"approval": ticket})
        wire.title("Deny")
        denied = await approval_of(wire, {"id": "c1", "name": "echo", "arguments": {"text": "x"}})
        await wire.post(f"/v1/approvals/{denied}", "judge-key", {"decision": "deny"})
        await wire.post(
            CALLS, "alice-key", {"id": "c1", "name": "echo", "arguments": {"text": "x"}, "approval": denied}
        )
        wire.title("Unknown")
        await wire.post("/v1/approvals/none", "judge-key", {"decision": "deny"})


async def approval_of(wire: Wire, body: object) -> str:
    """The ticket of a call that a person must approve."""
    asked = await wire.post(CALLS, "alice-key", body)
    ticket: str = asked.json()["metadata"]["approval"]["id"]
    wire.transcript.number(ticket, "ticket")
    return ticket
