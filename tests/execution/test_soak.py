"""A minute of mixed faults, and everything back at its baseline."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.execution.harness import LOOPS, Harness, at_rest, called, turns, until, workers_alive
from tests.execution.test_task_runner_manners import MANNERS, target

from toolplug.catalog.call import CallContext
from toolplug.catalog.plan import Plan, Retry
from toolplug.cluster.processes import Processes
from toolplug.execution.idempotency import Replays
from toolplug.execution.limiters import ConcurrencyLimit
from toolplug.execution.run import run
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.timeout(1200)]

SOAK_S = 20.0
CALLERS = 20


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


def descriptors() -> int:
    return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))


def brief(call: object, context: object) -> str:
    return "from a thread"


async def healthy(call: object, context: object) -> str:
    await asyncio.sleep(0)
    return "healthy"


@pytest.mark.requirement("H-provider-next-call", "LAW-4", "LAW-5", "LAW-6")
async def test_after_a_storm_of_faults_everything_is_back_at_the_baseline(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "toolplug")
    release, permits, loop = asyncio.Event(), ConcurrencyLimit(CALLERS, CALLERS, "plays"), asyncio.get_running_loop()
    crowd = harness.accounting.abandoned_limit("native", "crowd")
    crowd.limit = 10**9
    draw = random.Random(7)
    async with MemoryStore() as store:
        replay = Replays(store, Processes(store))
        common: dict[str, Any] = {"abandoned": crowd, "limiters": (permits,), "replay": replay}
        plans: list[Plan] = [
            harness.plan(
                target(manner.act, release, turn=turn), timeout_s=min(manner.timeout_s, 5.0), retry=retry, **common
            )
            for manner in MANNERS.values()
            for turn in (False, True)
            for retry in (None, Retry(1))
        ]
        plans.append(harness.plan(brief, runner=harness.threads, **common))
        await harness.call(healthy)
        await harness.call(brief, runner=harness.threads)
        await turns()
        threads, files, ends = threading.active_count(), descriptors(), loop.time() + SOAK_S
        seen: dict[str, int] = {}

        async def caller() -> None:
            while loop.time() < ends:
                release.clear()
                context = CallContext(idempotency_key=draw.choice([None, str(draw.random())]))
                call = asyncio.ensure_future(run(draw.choice(plans), called(), context))
                if draw.random() < 0.2:
                    await turns(draw.randrange(6))
                    call.cancel()
                await asyncio.wait([call])
                assert (await run(harness.plan(healthy), called(), CallContext())).output == "healthy"
                for status, count in harness.counted().items():
                    assert count >= seen.get(status, 0)
                    seen[status] = count
                if draw.random() < 0.05:
                    release.set()

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        release.set()
        await at_rest(harness)
        await until(lambda: crowd.running == 0)
        permits.resize(CALLERS, 0)
        admitted = [await permits.admit(0.0) is None for _ in range(CALLERS + 1)]

        assert admitted == [True] * CALLERS + [False]
        assert workers_alive() <= 1
        assert descriptors() == files
        assert threading.active_count() <= threads + CALLERS
