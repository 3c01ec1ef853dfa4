"""The host-wide hooks of provider packages: every one has its turn, and a broken one costs nobody a call."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.host.conftest import Package

from toolplug import CallContext, Principal, ToolCall, ToolStatus, open_host

pytestmark = pytest.mark.anyio

HOOKS = """
    from toolplug import FunctionProvider, tool

    class Hearing(FunctionProvider):
        def __init__(self):
            self.heard = []

        def before_call(self, call, context):
            self.heard.append(("before", call.name))

        async def after_call(self, call, context, result):
            self.heard.append(("after", result.output))

    class Broken(FunctionProvider):
        @tool
        async def answer(self) -> int:
            return 42

        def before_call(self, call, context):
            raise SystemExit("not this one")

        async def after_call(self, call, context, result):
            raise ValueError("nor this one")
"""


RAISING = {
    "before": '            raise SystemExit("not this one")',
    "after": '            raise ValueError("nor this one")',
}


@pytest.mark.requirement("H-fact-hook-raises", "C-12-before-call", "C-12-after-call")
async def test_a_hook_that_raises_leaves_the_others_their_turn_and_the_call_its_result(
    package: Package, config: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    points = {"hearing": "hooks_mod:Hearing", "broken": "hooks_mod:Broken"}
    package("toolplug-hooks", points, hooks_mod=HOOKS)
    path = config(
        """
        providers:
          first: {enabled: true, type: hearing}
          broken: {enabled: true}
          last: {enabled: true, type: hearing}
        """
    )
    async with open_host(path, environ={}) as host:
        result = await host.registry.execute(ToolCall("1", "answer"), CallContext())
        assert (result.status, result.output) == (ToolStatus.SUCCESS, "42")
        running: dict[str, Any] = {key: item.provider for key, item in host.registry.running().items()}
        heard = [("before", "answer"), ("after", "42")]
        assert (running["first"].heard, running["last"].heard) == (heard, heard)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    lines = {name: 1 + HOOKS.splitlines().index(text) for name, text in RAISING.items()}
    assert [re.sub(r"/\S*/", "", message) for message in errors] == [
        "hook before_call of provider 'broken' (toolplug-hooks 1.0) raised SystemExit at "
        f"hooks_mod.py:{lines['before']} in Broken.before_call (call 1); the call goes on without it",
        "hook after_call of provider 'broken' (toolplug-hooks 1.0) raised ValueError at "
        f"hooks_mod.py:{lines['after']} in Broken.after_call (call 1); the call goes on without it",
    ]


LATE = """
    import asyncio

    from toolplug import FunctionProvider, tool

    class Slow(FunctionProvider):
        gate = asyncio.Event()
        entered = asyncio.Event()

        @tool
        async def wait(self) -> str:
            self.entered.set()
            await self.gate.wait()
            return "late"

    class Hearing(FunctionProvider):
        told = []

        async def after_call(self, call, context, result):
            await asyncio.sleep(0)
            self.told.append(result.output)

        async def aclose(self):
            self.told.append("closed")

    class Opener(FunctionProvider):
        async def aclose(self):
            Slow.gate.set()
"""


@pytest.mark.requirement("C-12-after-call", "C-3-aclose-once")
@pytest.mark.parametrize("left", ["", "slow: {enabled: true}"])
async def test_a_provider_that_hears_calls_is_closed_after_those_that_run(
    package: Package, config: Callable[[str], Path], left: str
) -> None:
    points = {name.lower(): f"late_mod:{name}" for name in ("Slow", "Hearing", "Opener")}
    package("toolplug-late", points, late_mod=LATE)
    every = "providers: {hearing: {enabled: true}, opener: {enabled: true}, slow: {enabled: true}}"
    async with open_host(config(every), environ={}) as host:
        running: dict[str, Any] = {key: item.provider for key, item in host.registry.running().items()}
        call = asyncio.create_task(host.registry.execute(ToolCall("1", "wait"), CallContext()))
        await running["slow"].entered.wait()
        config(f"providers: {{{left}}}")
        await host.reload(by=Principal())
        assert (await call).output == "late"
    assert running["hearing"].told == ["late", "closed"]
