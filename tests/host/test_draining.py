"""The end of a drain: what still runs gets its result, and then the provider is closed, whatever ended it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from textwrap import dedent

import pytest
from httpx2 import ASGITransport, AsyncClient
from tests.execution.harness import until

from toolplug import CallContext, Host, Principal, ToolCall, ToolStatus, open_host
from toolplug.http.app import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-2-drain-ends", "C-2-limit-drain")]

SLOW = """
    import asyncio
    from toolplug import FunctionProvider, route, tool

    events = []

    class Slow(FunctionProvider):
        @tool(idempotent=True)
        async def hang(self) -> str:
            \"\"\"Hang.\"\"\"
            await self._hang()

        @tool(idempotent=True)
        async def cling(self) -> str:
            \"\"\"Cling.\"\"\"
            try:
                await self._hang()
            except asyncio.CancelledError:
                await asyncio.sleep(0.05)
                events.append("clung")
                raise

        @tool(read_only=True)
        async def again(self) -> str:
            \"\"\"Ask to be called again.\"\"\"
            from toolplug import ToolError
            events.append("entered")
            raise ToolError("not yet", retry_after_s=30.0)

        @route("GET", "/v1/slow")
        async def slow(self, request):
            await self._hang()

        async def _hang(self):
            events.append("entered")
            try:
                await asyncio.Event().wait()
            finally:
                events.append("stopped")

        async def aclose(self):
            events.append("closed")
"""
ADMIN = Principal(scopes=frozenset({"admin", "operator"}))
LIMITS = "drain: 50ms, max_concurrency: 1, queue: 5, retries: 1"
ENTRY = f"slow: {{type: ./slow.py:Slow, enabled: true, limits: {{{LIMITS}}}}}"

Write = Callable[[str], Path]
End = Callable[[Host, Write, AsyncExitStack], Awaitable[object]]


async def disable(host: Host, config: Write, life: AsyncExitStack) -> None:
    await host.disable("slow", by=ADMIN)


async def remove(host: Host, config: Write, life: AsyncExitStack) -> None:
    config("providers: {hello: {enabled: true}}")
    await host.reload(by=ADMIN)


async def change(host: Host, config: Write, life: AsyncExitStack) -> None:
    config(f"providers: {{{ENTRY.replace('50ms', '60ms')}}}")
    await host.reload(by=ADMIN)


async def leave(host: Host, config: Write, life: AsyncExitStack) -> None:
    await life.aclose()


ENDS = [disable, remove, change, leave]


@pytest.fixture
def slow(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(dedent(SLOW))


async def entered(host: Host, life: AsyncExitStack) -> list[str]:
    """Enter the host; what its provider does."""
    await life.enter_async_context(host)
    provider = host.registry.running()["slow"].provider
    events = vars(type(provider))["hang"].__globals__["events"]
    events.clear()  # a file that has not changed is one module in all tests
    return events


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("tool", ["hang", "cling"])
async def test_a_call_that_outlasts_the_drain_gets_its_result_before_the_provider_closes(
    config: Write, end: End, tool: str
) -> None:
    host = open_host(config(f"providers: {{{ENTRY}}}"), environ={})
    async with AsyncExitStack() as life:
        events = await entered(host, life)
        calls = [asyncio.create_task(host.registry.execute(ToolCall(f"c{n}", tool, {}), CallContext())) for n in (1, 2)]
        await until(lambda: "entered" in events)
        await end(host, config, life)
        first, waiting = await asyncio.gather(*calls)
        await until(lambda: "closed" in events)
    assert (first.status, first.metadata) == (ToolStatus.TIMEOUT, {"code": "draining"})
    assert first.output.startswith(f'tool "{tool}" timed out after 0.')
    assert waiting.metadata == {"code": "draining"}
    ended = ["entered", "stopped", *(["clung"] if tool == "cling" else []), "closed"]
    assert events[: len(ended)] == ended


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("end", ENDS)
async def test_a_call_that_waits_for_its_next_attempt_ends_with_the_last_one(config: Write, end: End) -> None:
    host = open_host(config(f"providers: {{{ENTRY}}}"), environ={})
    async with AsyncExitStack() as life:
        events = await entered(host, life)
        call = asyncio.create_task(host.registry.execute(ToolCall("c1", "again", {}), CallContext()))
        await until(lambda: "entered" in events)
        await asyncio.sleep(0)
        await end(host, config, life)
        result = await call
    assert (result.status, result.output) == (ToolStatus.TOOL_ERROR, "not yet")


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("end", ENDS)
async def test_a_request_that_outlasts_the_drain_is_answered_before_the_provider_closes(
    config: Write, end: End
) -> None:
    host = open_host(config(f"providers: {{{ENTRY}}}"), environ={})
    async with AsyncExitStack() as life:
        events = await entered(host, life)
        transport = ASGITransport(create_app(host))
        async with AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            request = asyncio.create_task(client.get("/v1/slow"))
            await until(lambda: "entered" in events)
            await end(host, config, life)
            answer = await request
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
    assert events[:3] == ["entered", "stopped", "closed"]
