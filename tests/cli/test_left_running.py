"""What a provider leaves behind (tasks, threads, forks) ends neither the process nor keeps it; in real processes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import httpx2
import pytest
from tests.cli.process import PATIENCE_S, serving, toolplug
from tests.providers.fake_distribution import install, provides

LEAVING = """
    import asyncio
    import multiprocessing
    import signal
    import sys
    import threading
    import time
    from concurrent.futures import ThreadPoolExecutor

    from starlette.responses import StreamingResponse
    from toolplug import FunctionProvider, route, tool

    HUNG_S = 3600

    def begun(there):
        there.send("begun")
        time.sleep(HUNG_S)

    class Leaving(FunctionProvider):
        @tool
        async def works(self) -> str:
            return "fine"

        @tool(timeout="50ms")
        async def hangs_in_a_thread_of_asyncio(self) -> None:
            await asyncio.to_thread(time.sleep, HUNG_S)

        @tool
        async def hangs_in_a_pool(self) -> None:
            ThreadPoolExecutor().submit(time.sleep, HUNG_S)

        @tool
        async def hangs_in_a_thread(self) -> None:
            threading.Thread(target=time.sleep, args=(HUNG_S,)).start()

        @tool
        async def takes_all_threads(self) -> None:
            threading.stack_size(1 << 45)

        @tool
        async def takes_the_signals(self) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        @tool
        async def exits_in_a_task(self) -> None:
            async def leave() -> None:
                sys.exit("gone")

            self.kept = asyncio.create_task(leave())

        @tool
        async def exits_in_a_callback(self) -> None:
            asyncio.get_running_loop().call_soon(sys.exit, 5)

        @route("GET", "/v1/parts")
        async def parts(self, request):
            async def exits():
                yield b"one part"
                sys.exit(3)

            return StreamingResponse(exits())

        @tool
        async def forks_and_terminates(self) -> int:
            here, there = multiprocessing.Pipe()
            child = multiprocessing.get_context("fork").Process(target=begun, args=(there,))
            child.start()
            await asyncio.to_thread(here.recv)
            child.terminate()
            await asyncio.to_thread(child.join)
            return child.exitcode
"""

HUNG = [
    pytest.param("hangs_in_a_thread_of_asyncio", marks=pytest.mark.judge),
    pytest.param("hangs_in_a_pool", marks=pytest.mark.judge),
    pytest.param("hangs_in_a_thread", marks=pytest.mark.process),
]


@pytest.fixture
def site(tmp_path: Path, write: Callable[..., Path]) -> Path:
    """A folder with a provider whose tools leave something running, and a configuration that names it."""
    write("providers: {leaving: {enabled: true}}")
    folder = tmp_path / "site"
    code = {"leaving_mod": dedent(LEAVING)}
    install(folder, "toolplug-leaving", provides(leaving="leaving_mod:Leaving"), modules=code)
    return folder


@pytest.mark.requirement("H-fact-hung-thread", "H-fact-serve-shutdown", "C-10-signals")
@pytest.mark.parametrize("tool", HUNG)
def test_a_thread_that_a_provider_made_and_that_hangs_keeps_no_signal_waiting(
    tmp_path: Path, site: Path, tool: str
) -> None:
    with serving(folder=tmp_path, site=site) as service:
        service.call(tool)
        service.send(signal.SIGTERM)
        assert service.end() == 0


@pytest.mark.requirement("H-fact-hung-thread")
@pytest.mark.parametrize("tool", HUNG)
def test_a_thread_that_a_provider_made_and_that_hangs_keeps_no_command_waiting(
    tmp_path: Path, site: Path, tool: str
) -> None:
    done = toolplug("call", tool, folder=tmp_path, site=site)
    in_time = tool != "hangs_in_a_thread_of_asyncio"
    assert (done.code, done.out) == ((0, "null\n") if in_time else (1, f'tool "{tool}" timed out after 0.05 s\n'))


@pytest.mark.process
@pytest.mark.requirement("H-provider-exhausts-threads", "H-fact-serve-shutdown", "C-10-signals")
def test_a_signal_ends_a_process_that_can_have_no_more_threads(tmp_path: Path, site: Path) -> None:
    with serving(folder=tmp_path, site=site) as service:
        service.call("takes_all_threads")
        service.send(signal.SIGTERM)
        assert service.end() == 0


@pytest.mark.process
@pytest.mark.requirement("H-provider-exits", "H-provider-next-call")
@pytest.mark.parametrize("tool", ["exits_in_a_task", "exits_in_a_callback"])
def test_what_a_provider_left_running_may_exit_and_the_host_goes_on(tmp_path: Path, site: Path, tool: str) -> None:
    with serving(folder=tmp_path, site=site) as service:
        assert service.call(tool).json()["status"] == "success"
        assert "SystemExit" in service.wait_for("left running raised")
        assert service.call("works").json()["output"] == "fine"
        service.send(signal.SIGTERM)
        assert service.end() == 0


@pytest.mark.process
@pytest.mark.requirement("H-provider-exits", "H-provider-next-call")
def test_a_stream_of_a_route_that_exits_is_broken_off_and_the_host_goes_on(tmp_path: Path, site: Path) -> None:
    with serving(folder=tmp_path, site=site) as service:
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{service.url}/v1/parts", timeout=PATIENCE_S)
        assert service.call("works").json()["output"] == "fine"


@pytest.mark.process
@pytest.mark.requirement("H-provider-exits")
def test_a_process_that_a_provider_has_forked_dies_of_a_signal_as_any_other(tmp_path: Path, site: Path) -> None:
    with serving(folder=tmp_path, site=site) as service:
        assert service.call("forks_and_terminates").json()["structured"] == -signal.SIGTERM
        assert service.call("works").json()["output"] == "fine"


@pytest.mark.process
@pytest.mark.requirement("C-10-signals", "H-fact-serve-shutdown")
def test_a_signal_that_a_provider_has_taken_is_taken_back_with_a_word(tmp_path: Path, site: Path) -> None:
    with serving(folder=tmp_path, site=site) as service:
        service.call("takes_the_signals")
        assert "SIGTERM was given to" in service.wait_for("taken back")
        service.send(signal.SIGTERM)
        assert service.end() == 0
