"""Every knob of `limits` and every policy, written in providers.yaml: each acts, and says where it was set."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.host.conftest import Package

from toolplug import CallContext, Host, ToolCall, ToolResult, open_host

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("knobs")]

KNOBS = """
    import asyncio
    import threading
    from toolplug import FunctionProvider, ToolError, tool

    class Knobs(FunctionProvider):
        def __init__(self):
            Knobs.latest = self
            self.calls = 0
            self.keys = []
            self.gate = asyncio.Event()
            self.entered = asyncio.Event()
            self.thread_gate = threading.Event()

        async def aclose(self):
            self.thread_gate.set()

        @tool
        async def echo(self, text: str = "") -> str:
            self.calls += 1
            return text

        @tool
        async def wait(self) -> str:
            self.entered.set()
            await self.gate.wait()
            return "done"

        @tool(read_only=True)
        async def flaky(self, fail: int) -> str:
            self.calls += 1
            if self.calls <= fail:
                raise RuntimeError("not yet")
            return f"after {self.calls}"

        @tool(idempotent=True)
        async def asks(self) -> str:
            self.calls += 1
            raise ToolError("busy", retry_after_s=0.001)

        @tool(read_only=True)
        async def refuses(self) -> str:
            self.calls += 1
            raise ToolError("no")

        @tool(read_only=True)
        async def hangs(self) -> str:
            self.calls += 1
            await asyncio.Event().wait()

        @tool
        async def unsafe(self) -> str:
            self.calls += 1
            raise RuntimeError("not yet")

        @tool
        def blocks(self) -> str:
            self.thread_gate.wait()
            return "unblocked"

    class Keyed(Knobs):
        accepts_idempotency_key = True

        async def execute(self, call, context):
            self.keys.append(context.idempotency_key)
            raise RuntimeError("not yet")
"""
Write = Callable[[str], Path]


@pytest.fixture
def knobs(package: Package) -> None:
    package("toolplug-knobs", {"knobs": "knobs_mod:Knobs", "keyed": "knobs_mod:Keyed"}, knobs_mod=KNOBS)


def provider() -> Any:
    return sys.modules["knobs_mod"].Knobs.latest


async def run(host: Host, name: str, context: CallContext | None = None, **arguments: object) -> ToolResult:
    return await host.registry.execute(ToolCall("c", name, arguments), context or CallContext())


def shown(host: Host, name: str, knob: str) -> list[tuple[str, str]]:
    """Value and origin of a knob, as `explain` shows them; the folder of the file left out."""
    settings = host.registry.catalog[name].plan.settings
    return [(item.value, item.origin.rpartition("/")[2]) for item in settings if item.name == knob]


@pytest.mark.requirement("C-2-limit-timeout", "C-2-retry-never-timeout")
async def test_timeout_ends_the_wait_and_is_not_retried(config: Write) -> None:
    async with open_host(config("providers: {knobs: {enabled: true, limits: {timeout: 300ms, retries: 3}}}")) as host:
        assert (await run(host, "hangs")).output == 'tool "hangs" timed out after 0.3 s'
        assert provider().calls == 1
        assert shown(host, "hangs", "timeout") == [("300ms", "providers.yaml:1")]


@pytest.mark.slow
@pytest.mark.requirement("C-2-request-narrows", "C-12-deadline", "H-time-deadlines")
async def test_a_request_narrows_the_timeout_and_never_widens_it(config: Write) -> None:
    async with open_host(config("providers: {knobs: {enabled: true, limits: {timeout: 500ms}}}")) as host:
        now = asyncio.get_running_loop().time()
        narrow = await run(host, "hangs", CallContext(deadline=now + 0.4))
        wide = await run(host, "hangs", CallContext(deadline=now + 3600))
        late = await run(host, "echo", CallContext(deadline=now - 1))
        assert (narrow.status, late.status) == ("timeout", "timeout")
        assert wide.output == 'tool "hangs" timed out after 0.5 s'
        assert provider().calls == 2


@pytest.mark.requirement("C-2-limit-max-concurrency", "C-2-limit-queue")
async def test_max_concurrency_refuses_and_queue_lets_wait(config: Write) -> None:
    text = "providers: {knobs: {enabled: true, limits: {max_concurrency: 1, queue: 1}}}"
    async with open_host(config(text)) as host:
        running = asyncio.create_task(run(host, "wait"))
        await provider().entered.wait()
        queued = asyncio.create_task(run(host, "wait"))
        await asyncio.sleep(0)
        refused = await run(host, "wait")
        assert (refused.status, refused.retry_after_s) == ("limited", 1.0)
        assert refused.output.startswith('tool "wait" is limited: ')
        provider().gate.set()
        assert [(await running).output, (await queued).output] == ["done", "done"]
        assert shown(host, "wait", "queue") == [("1", "providers.yaml:1")]


@pytest.mark.requirement("C-2-limit-rate", "C-2-counters-all-levels", "I2-3-state-survives")
async def test_rates_of_all_levels_must_admit_and_survive_a_reload(config: Write) -> None:
    text = """
        limits: {rate: 5/hour}
        providers:
          knobs:
            enabled: true
            limits: {rate: 4/hour}
            tools: {echo: {limits: {rate: 3/hour}}}
    """
    async with open_host(config(text)) as host:
        assert [(await run(host, "echo")).status for _ in range(4)] == [*["success"] * 3, "limited"]
        assert (await run(host, "asks")).status == "tool_error"
        assert (await run(host, "asks")).status == "limited"
        config(text.replace("tools: {", "tools: {wait: deny, "))
        before = provider()
        await host.reload(by=CallContext().principal)
        assert provider() is not before
        assert (await run(host, "echo")).status == "limited"


def at_each_level(knob: str, wide: object, narrow: object, narrowest: int) -> dict[str, object]:
    """Settings with one knob for every tool, for the provider and for two of its tools: one of the three narrow."""
    host, entry, tool = ({knob: narrow if level == narrowest else wide} for level in range(3))
    tools = {"unsafe": {"limits": tool}, "wait": {"limits": tool}}
    providers = {"knobs": {"enabled": True, "limits": entry, "tools": tools}}
    return {"limits": host, "providers": providers, "store": "memory://"}


@pytest.mark.requirement("C-2-counters-all-levels")
@pytest.mark.parametrize("narrowest", range(3))
@pytest.mark.parametrize(
    ("knob", "wide", "narrow"),
    [
        ("rate", "9/hour", "1/hour"),
        ("breaker", {"failures": 9, "open_for": "1h"}, {"failures": 1, "open_for": "1h"}),
    ],
)
async def test_a_rate_and_a_breaker_of_any_level_refuse_though_the_others_admit(
    knob: str, wide: object, narrow: object, narrowest: int
) -> None:
    async with open_host(at_each_level(knob, wide, narrow, narrowest)) as host:
        assert [(await run(host, "unsafe")).status for _ in range(3)] == ["panic", "limited", "limited"]
        assert provider().calls == 1


@pytest.mark.requirement("C-2-counters-all-levels", "C-2-limit-max-concurrency")
@pytest.mark.parametrize("narrowest", range(3))
async def test_a_concurrency_limit_of_any_level_refuses_though_the_others_admit(narrowest: int) -> None:
    async with open_host(at_each_level("max_concurrency", 9, 1, narrowest)) as host:
        running = asyncio.create_task(run(host, "wait"))
        await provider().entered.wait()
        assert (await run(host, "wait")).status == "limited"
        provider().gate.set()
        assert (await running).output == "done"
        assert (await run(host, "wait")).output == "done"


@pytest.mark.requirement("C-2-limit-max-result-bytes", "C-3-result-cut")
async def test_max_result_bytes_cuts_at_n_plus_one(config: Write) -> None:
    async with open_host(config("providers: {knobs: {enabled: true, limits: {max_result_bytes: 4}}}")) as host:
        whole, cut = await run(host, "echo", text="ääää"[:2]), await run(host, "echo", text="ääx")
        assert whole.output == "ää"
        assert cut.output == "ää\n[cut: 1 of 5 bytes are missing]"


@pytest.mark.requirement("C-2-limit-retries", "C-2-retry-on", "C-2-retry-one-metric", "C-3-retries-safe")
async def test_retries_follow_a_panic_or_a_wish_where_it_is_safe(config: Write) -> None:
    async with open_host(config("providers: {knobs: {enabled: true, limits: {retries: 2}}}")) as host:
        assert (await run(host, "flaky", fail=2)).output == "after 3"
        counts = {"provider": "knobs", "tool_name": "flaky", "status": "success"}
        assert host.metrics.get_sample_value("antwort_builtin_tool_executions_total", counts) == 1
        for name, attempts in {"asks": 3, "refuses": 1, "unsafe": 1}.items():
            provider().calls = 0
            await run(host, name)
            assert provider().calls == attempts, name
        assert shown(host, "unsafe", "retries") == [("0", "the tool is neither read-only nor idempotent")]


@pytest.mark.requirement("C-3-retries-safe")
async def test_a_provider_that_takes_an_idempotency_key_gets_the_same_one_each_time(config: Write) -> None:
    async with open_host(config("providers: {keyed: {enabled: true, limits: {retries: 1}}}")) as host:
        await run(host, "unsafe")
        await run(host, "unsafe", CallContext(idempotency_key="mine"))
        first, again, mine, mine_again = provider().keys
        assert first == again
        assert first
        assert (mine, mine_again) == ("mine", "mine")


@pytest.mark.slow
@pytest.mark.requirement("C-2-limit-breaker", "C-2-breaker-counts", "C-2-breaker-recovers")
async def test_a_breaker_opens_after_panics_and_timeouts_only_and_closes_again(config: Write) -> None:
    text = """
        providers:
          knobs:
            enabled: true
            limits: {timeout: 500ms, breaker: {failures: 2, open_for: 1s}}
    """
    async with open_host(config(text)) as host:
        for name in ("refuses", "refuses", "refuses", "unsafe", "hangs"):
            assert (await run(host, name)).status != "limited"
        opened = await run(host, "echo")
        assert opened.status == "limited"
        assert opened.output.startswith('tool "echo" is limited: its breaker is open after 2 failures of knobs')
        closed = opened
        while closed.status == "limited":
            await asyncio.sleep(0)
            closed = await run(host, "echo", text="back")
        assert closed.output == "back"
        assert (await run(host, "unsafe")).status == "panic"
        assert (await run(host, "echo")).status == "success"


@pytest.mark.slow
@pytest.mark.requirement("C-2-breaker-abandoned", "C-2-sync-bulkhead-default", "C-2-defaults")
async def test_sixteen_abandoned_calls_open_a_providers_breaker_though_none_is_set(config: Write) -> None:
    text = "providers: {knobs: {enabled: true, tools: {blocks: {limits: {timeout: 500ms}}}}}"
    async with open_host(config(text)) as host:
        results = await asyncio.gather(*(run(host, "blocks") for _ in range(16)))
        assert {result.status for result in results} == {"timeout"}
        refused = await run(host, "echo")
        assert refused.output == (
            'tool "echo" is limited: its breaker is open: 16 abandoned calls of knobs still run, retry in 30 s'
        )
        provider().thread_gate.set()
        while (await run(host, "echo")).status == "limited":
            await asyncio.sleep(0)


@pytest.mark.requirement("C-2-defaults", "C-3-policy-allow")
async def test_the_defaults_are_those_of_the_contract(config: Write) -> None:
    async with open_host(config("providers: {knobs: {enabled: true}}")) as host:
        plan = host.registry.catalog["blocks"].plan
        assert [(item.name, item.value, item.origin) for item in plan.settings] == [
            ("policy", "allow", "default"),
            ("timeout", "1m", "default"),
            ("max_result_bytes", "1MiB", "default"),
            ("drain", "30s", "default"),
            ("artifacts", "false", "default"),
            ("retries", "0", "default"),
            ("max_concurrency", "16", "default for synchronous tools"),
        ]
        assert (await run(host, "echo", text="x")).output == "x"
