"""A loop may end while calls run: nothing hangs, nothing is reported but what the tool did."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading

import pytest
from tests.execution.harness import Harness, turns, until

pytestmark = pytest.mark.requirement("LAW-4")


async def hangs(call: object, context: object) -> None:
    await asyncio.Event().wait()


def test_a_run_ends_while_calls_are_in_flight() -> None:
    ends: list[str] = []

    async def tool(call: object, context: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cleaned up")

    async def main() -> Harness:
        harness = Harness()
        await harness.runner.open()
        asyncio.current_task()
        calls = [asyncio.ensure_future(harness.call(tool)) for _ in range(3)]
        await turns(5)
        calls.append(asyncio.ensure_future(harness.call(tool)))
        return harness

    harness = asyncio.run(main())

    assert ends in (["cleaned up"] * 3, ["cleaned up"] * 4)  # on 3.11 the last one has not begun
    assert harness.idle() == (0, 0, 0)
    assert harness.counted() == {"cancelled": 4}


def test_a_run_ends_in_the_turn_in_which_calls_begin() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.runner.open()
        calls = [asyncio.ensure_future(harness.call(hangs)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(call.done() for call in calls)

    asyncio.run(main())


def test_a_loop_closed_over_running_calls_gives_them_up_quietly() -> None:
    loop = asyncio.new_event_loop()
    reported: list[str] = []
    loop.set_exception_handler(lambda _, about: reported.append(str(about["message"])))

    async def main() -> None:
        harness = Harness()
        await harness.runner.open()
        running = asyncio.ensure_future(harness.call(hangs))
        await turns(5)
        del running

    loop.run_until_complete(main())
    loop.close()
    gc.collect()

    assert set(reported) <= {"Task was destroyed but it is pending!"}


def test_a_loop_closed_while_a_thread_hangs_is_left_alone_by_it() -> None:
    release, ended = threading.Event(), threading.Event()

    def tool(call: object, context: object) -> None:
        release.wait()
        ended.set()

    async def main() -> Harness:
        async with Harness() as harness:
            running = asyncio.ensure_future(harness.call(tool, runner=harness.threads))
            await until(lambda: harness.switch.running == 1)
            running.cancel()
            await turns(3)
            return harness

    asyncio.run(main())
    release.set()

    assert ended.wait(10)


HUNG = """
import asyncio, threading
from tests.execution.harness import Harness

def hangs(call, context):
    threading.Event().wait()

async def main():
    async with Harness() as harness:
        result = await harness.call(hangs, runner=harness.threads, timeout_s=0.01)
        print(result.status)

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.requirement("H-fact-hung-thread")
def test_a_hung_synchronous_tool_does_not_keep_the_process_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout == "timeout\n"
