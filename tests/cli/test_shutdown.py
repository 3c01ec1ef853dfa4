"""The end of `toolplug serve` with providers that will not end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest
from tests.cli.process import serving
from tests.providers.fake_distribution import install, provides

pytestmark = pytest.mark.process

CLOSING = """
    import asyncio
    import sys
    import time

    from pydantic import BaseModel
    from toolplug import FunctionProvider, tool

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

        @tool
        async def naps(self, seconds: float) -> str:
            print("naps now", file=sys.stderr, flush=True)
            await asyncio.sleep(seconds)
            return "rested"

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
        begun = time.monotonic()
        assert service.end() == 0
        assert time.monotonic() - begun < 25


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
