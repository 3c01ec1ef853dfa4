"""The guard in a host: what callers get, by tool, and what the operator sees."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, model_serializer

from toolplug import (
    CallContext,
    FunctionProvider,
    FunctionRegistry,
    Principal,
    ToolCall,
    ToolDefinition,
    ToolResult,
    tool,
)
from toolplug.errors import ConfigError
from toolplug.runtime.threads import POOL_THREADS
from toolplug_guard.provider import INLINE_BYTES, Guard

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[Any]]

MAIL = "ada@example.com"
KEY = "ghp_" + "a" * 36


class Sealed(BaseModel):
    """A value that cannot be serialised."""

    @model_serializer
    def sealed(self) -> str:
        raise ValueError("sealed")


class Leaky(FunctionProvider):
    """Returns what it is asked for."""

    @tool
    async def echo(self, text: str) -> str:
        """Return the text."""
        return text

    @tool
    async def record(self, text: str) -> dict[str, object]:
        """Return a record with the text."""
        return {"mail": text, "n": 1}

    @tool
    async def sealed(self, value: Sealed) -> str:
        """Take a value that nobody can write as JSON."""
        return "opened"

    @tool
    async def image(self) -> ToolResult:
        """Return an image with a caption."""
        parts = ({"type": "text", "text": MAIL}, {"type": "image", "data": "QUJD", "mimeType": "image/png"})
        return ToolResult(output=f"by {MAIL}", parts=parts, metadata={"author": MAIL})


def guarded(metrics: CollectorRegistry | None = None, **settings: object) -> FunctionRegistry:
    return FunctionRegistry({"guard": Guard(settings, key="guard"), "leaky": Leaky()}, metrics=metrics)


@pytest.fixture
def metrics() -> CollectorRegistry:
    return CollectorRegistry()


async def call(registry: FunctionRegistry, name: str, **arguments: object) -> ToolResult:
    return await registry.execute(ToolCall("1", name, arguments), CallContext())


@pytest.mark.requirement("I3-guard-mask")
async def test_by_default_secrets_are_masked_and_personal_data_is_not(metrics: CollectorRegistry) -> None:
    async with guarded(
        metrics,
    ) as registry:
        assert (await call(registry, "echo", text=f"{KEY} of {MAIL}")).output == f"[masked: api_keys] of {MAIL}"
        assert metrics.get_sample_value("guard_masked_total", {"kind": "api_keys"}) == 1


@pytest.mark.requirement("I3-guard-mask")
async def test_a_masked_result_keeps_everything_else(metrics: CollectorRegistry) -> None:
    async with guarded(metrics, mask=["email"]) as registry:
        record = await call(registry, "record", text=MAIL)
        assert record.structured == {"mail": "[masked: email]", "n": 1}
        assert json.loads(record.output) == record.structured
        image = await call(registry, "image")
        assert image == ToolResult(
            "1",
            "image",
            "by [masked: email]",
            parts=(
                {"type": "text", "text": "[masked: email]"},
                {"type": "image", "data": "QUJD", "mimeType": "image/png"},
            ),
            metadata={"author": "[masked: email]"},
        )
        assert metrics.get_sample_value("guard_masked_total", {"kind": "email"}) == 4


@pytest.mark.requirement("I3-guard-mask")
async def test_a_result_with_a_kind_that_blocks_is_withheld_whole(metrics: CollectorRegistry) -> None:
    async with guarded(metrics, mask=["email"], block=["api_keys", "jwt"]) as registry:
        withheld = await call(registry, "record", text=f"{MAIL} {KEY}")
        assert withheld == ToolResult("1", "record", "the result is withheld: it has api_keys", "tool_error")
        assert metrics.get_sample_value("guard_blocked_total", {"kind": "api_keys"}) == 1
        assert metrics.get_sample_value("guard_masked_total", {"kind": "email"}) is None


async def test_kinds_of_ones_own_and_a_text_of_ones_own() -> None:
    settings = {"mask": ["ticket", "email"], "patterns": {"ticket": r"\bINT-\d{6}\b"}, "replacement": "({kind})"}
    async with guarded(**settings) as registry:
        assert (await call(registry, "echo", text=f"INT-123456 by {MAIL}")).output == "(ticket) by (email)"


@pytest.mark.requirement("I3-guard-tools")
async def test_a_tool_may_have_kinds_of_its_own_and_the_first_entry_that_fits_counts() -> None:
    overrides = [{"tool": "leaky.record", "mask": []}, {"tool": "rec*", "mask": ["email"]}]
    async with guarded(mask=["email"], overrides=overrides) as registry:
        assert (await call(registry, "record", text=MAIL)).structured == {"mail": MAIL, "n": 1}
        assert (await call(registry, "echo", text=MAIL)).output == "[masked: email]"


@pytest.mark.parametrize("length", [INLINE_BYTES // 2, 20 * INLINE_BYTES])
async def test_a_large_text_is_masked_like_a_small_one(length: int) -> None:
    async with guarded(mask=["email"], rules=[{"tool": "*", "pattern": "forbidden", "reason": "no"}]) as registry:
        text = "x " * (length // 2)
        assert (await call(registry, "echo", text=text + MAIL)).output == f"{text}[masked: email]"
        assert (await call(registry, "echo", text=text + "forbidden")).status == "denied"


async def test_a_call_that_cannot_be_checked_is_refused_and_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(rules=[{"tool": "sealed", "pattern": "x", "reason": "no"}]) as registry:
        refused = await call(registry, "sealed", value={})
        assert (refused.status, refused.output) == ("denied", 'tool "sealed" is not allowed: hook: a check failed')
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.startswith("hook before_call of provider 'guard' ")
    assert line.endswith("; the call is denied (on_failure: deny)")


@pytest.mark.requirement("I3-guard-tools")
@pytest.mark.parametrize(
    ("pattern", "kind", "source", "name", "listed", "named"),
    [
        ("search", "native", "web", "search", "search", True),
        ("search", "native", "web", "search", "work.search", True),
        ("web.search", "native", "web", "search", "search", True),
        ("search", "mcp", "docs", "search", "docs.search", False),
        ("docs.search", "mcp", "docs", "search", "docs.search", True),
        ("docs.search", "mcp", "docs", "search", "anything", True),
        ("docs.*", "mcp", "docs", "search", "d.search", True),
        ("*search", "mcp", "docs", "search", "docs.search", True),
        ("search", "session", "_session", "search", "search", True),
        ("search", "session", "_session", "search", "tab.search", False),
        ("_session.search", "session", "_session", "search", "tab.search", True),
        ("Search", "native", "web", "search", "search", False),
    ],
)
async def test_a_glob_names_a_tool_precisely(
    pattern: str, kind: str, source: str, name: str, listed: str, named: bool
) -> None:
    guard = Guard({"rules": [{"tool": pattern, "reason": "no"}]}, key="guard")
    async with FunctionRegistry({"guard": guard}):
        ref = ToolDefinition(name=listed).ref._replace(kind=kind, source=source, name=name)
        refused = await guard.before_call(ToolCall("1", name), ToolDefinition(name=listed, ref=ref))
        assert refused == ("no" if named else None)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mask": ["emial"]}, "unknown kind 'emial'; nearest: 'email'"),
        ({"block": ["zzz"]}, "unknown kind 'zzz'; known: api_keys, private_keys"),
        ({"overrides": [{"tool": "x", "mask": ["phon"]}]}, "nearest: 'phone'"),
        ({"patterns": {"email": "x"}, "mask": ["email"]}, "'email' is a built-in kind"),
        ({"patterns": {"mine": "x"}}, "'mine' is not used; name it in mask or block"),
        ({"patterns": {"mine": "x*"}, "mask": ["mine"]}, "'x*' matches the empty text"),
        ({"patterns": {"mine": "(?=x)"}, "mask": ["mine"]}, "is not a pattern of RE2"),
        ({"patterns": {"Mine": "x"}, "mask": ["Mine"]}, "providers.guard.patterns.Mine"),
        ({"masks": ["email"]}, "masks"),
        ({"mask": "email"}, "mask"),
    ],
)
async def test_a_wrong_setting_stops_the_start_and_says_which(
    serve: Serve, settings: Mapping[str, object], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with serve(**settings):
            raise AssertionError("it must not start")
    (problem,) = caught.value.problems
    assert said in f"{problem.path}: {problem.message}"


@pytest.mark.requirement("I3-guard-mask")
async def test_over_http_and_in_a_toolset_it_is_the_same(serve: Serve) -> None:
    host = {
        "toolsets": {"work": {"prefix": "work", "from": "provider:hello"}},
        "agents": {"bot": {"toolsets": ["work"]}},
    }
    async with serve(mask=["email"], host=host) as served:
        body = {"name": "hello", "arguments": {"name": MAIL}}
        answer = (await served.client.post("/v1/tool-calls", json=body)).json()
        assert (answer["status"], answer["output"]) == ("success", "Hello, [masked: email]!")
        metrics = (await served.client.get("/metrics")).text.splitlines()
        assert 'guard_masked_total{kind="email"} 1.0' in metrics


SERVER = """
import json, sys

def answer(request):
    if request["method"] == "initialize":
        info = {"name": "leaky", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if request["method"] == "tools/list":
        return {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}
    return {"content": [{"type": "text", "text": "from ada@example.com"}]}

for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}), flush=True)
"""


@pytest.mark.mcp
@pytest.mark.requirement("I3-guard-mask", "I3-guard-tools")
async def test_the_tool_of_an_mcp_server_is_masked_and_has_a_name_of_its_own(serve: Serve, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    host = {
        "mcp_servers": {"docs": {"command": sys.executable, "args": [str(script)]}},
        "toolsets": {"docs": {"prefix": "d", "from": "mcp:docs"}},
        "agents": {"bot": {"toolsets": ["docs"]}},
    }
    rules = [{"tool": "hello", "reason": "not the provider's"}]
    async with serve(mask=["email"], rules=rules, host=host) as served:
        await served.client.post("/api/mcp-servers/docs/discover", params={"wait": "true"})
        executor = served.host.executor_for(Principal(scopes=frozenset({"admin"})), agent="bot")
        assert (await executor.execute(ToolCall("1", "d.hello"))).output == "from [masked: email]"
        assert (await served.call("hello")).status == "denied"


async def test_large_results_of_one_tenant_leave_threads_for_another() -> None:
    guard = Guard({"mask": ["email"]}, key="guard")
    async with FunctionRegistry({"guard": guard, "leaky": Leaky()}) as registry:
        release = Event()
        hung = [asyncio.create_task(guard._site.threads.run("t1", release.wait)) for _ in range(2 * POOL_THREADS)]
        try:
            text = f"{'x ' * INLINE_BYTES}{MAIL}"
            other = CallContext(principal=Principal(tenant="t2"))
            answer = await registry.execute(ToolCall("1", "echo", {"text": text}), other)
            assert answer.output.endswith("[masked: email]")
        finally:
            release.set()
            await asyncio.gather(*hung)
