"""The end of `toolplug serve` with providers that will not end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import httpx2
import pytest
from tests.cli.process import serving
from tests.providers.fake_distribution import install, provides

pytestmark = pytest.mark.process

CLOSING = """
    import asyncio
    import sys
    import time

    from pydantic import BaseModel
    from toolplug import FunctionProvider, route, tool

    class Closing(FunctionProvider):
        class Config(BaseModel):
            blocks: bool

        @tool(timeout="50ms")
        async def clings(self) -> str:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    pass

        async def before_call(self, call, context):
            if call.arguments.get("seconds") == 1:
                print("asks now", file=sys.stderr, flush=True)
                await asyncio.sleep(600)

        @tool
        async def naps(self, seconds: float) -> str:
            print("naps now", file=sys.stderr, flush=True)
            await asyncio.sleep(seconds)
            return "rested"

        @route("GET", "/v1/naps")
        async def naps_on(self, request):
            await self.naps(600)

        async def aclose(self):
            print("closing", file=sys.stderr, flush=True)
            while self.config.blocks:
                time.sleep(60)
            await self.clings()
"""


@pytest.fixture
def closing(tmp_path: Path) -> Path:
    """A folder with a provider whose end does not end."""
    folder = tmp_path / "closing"
    install(
        folder, "toolplug-closing", provides(closing="closing_mod:Closing"), modules={"closing_mod": dedent(CLOSING)}
    )
    return folder


@pytest.mark.requirement("C-10-signals-in-time")
@pytest.mark.parametrize("blocks", ["true", "false"])
def test_without_a_running_call_it_ends_in_time_whatever_its_providers_do(
    tmp_path: Path, write: Callable[..., Path], closing: Path, blocks: str
) -> None:
    write(f"providers: {{closing: {{enabled: true, blocks: {blocks}}}}}")
    with serving(folder=tmp_path, site=closing) as service:
        assert service.call("clings").json()["status"] == "timeout"
        service.send(signal.SIGTERM)
        assert service.end() == 0  # gives up after 30 s; blocking would take 60


@pytest.mark.requirement("C-10-signals-in-time")
def test_a_running_call_keeps_its_drain_before_the_time_to_close_begins(
    tmp_path: Path, write: Callable[..., Path], closing: Path
) -> None:
    write("providers: {closing: {enabled: true, blocks: false}}")
    with serving(folder=tmp_path, site=closing) as service, ThreadPoolExecutor(1) as caller:
        answer = caller.submit(service.call, "naps", seconds=22)
        service.wait_for("naps now")
        service.send(signal.SIGTERM)
        assert answer.result().json()["output"] == "rested"
        assert service.end() == 0


@pytest.mark.requirement("C-2-drain-ends")
def test_whatever_outlasts_the_drain_is_answered_in_json_before_its_provider_closes(
    tmp_path: Path, write: Callable[..., Path], closing: Path
) -> None:
    write("providers: {closing: {enabled: true, blocks: false, limits: {drain: 1s}}}")
    with serving(folder=tmp_path, site=closing) as service, ThreadPoolExecutor(4) as caller:
        call = caller.submit(service.call, "naps", seconds=600)
        request = caller.submit(httpx2.get, f"{service.url}/v1/naps", timeout=30)
        asked = caller.submit(service.call, "naps", seconds=1)
        service.wait_for("naps now", times=2)
        service.wait_for("asks now")
        service.send(signal.SIGTERM)
        result, problem, unasked = call.result(), request.result(), asked.result()
        assert service.end() == 0
    assert (result.json()["status"], result.json()["metadata"]) == ("timeout", {"code": "draining"})
    assert (problem.status_code, problem.json()["error"]["code"]) == (503, "draining")
    assert (unasked.status_code, unasked.json()["error"]["code"]) == (503, "draining")
    assert "closing" in service.lines
    assert not [line for line in service.lines if "Traceback" in line]
