"""The watchdog of the event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading

import pytest

from toolplug.cli.serving.watchdog import Watchdog

pytestmark = pytest.mark.anyio


class _Heard(logging.Handler):
    """Keeps the lines, and lets the one who blocks go on once there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.first = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.first.set()


@pytest.fixture
def heard() -> _Heard:
    """What the logger of the execution layer says."""
    return _Heard()


@pytest.mark.requirement("H-provider-blocks-loop")
@pytest.mark.parametrize(("owners", "who"), [({"tests": "slow"}, "provider 'slow'"), ({}, "the host")])
async def test_who_holds_up_the_loop_is_named_with_the_place_while_it_does(
    heard: _Heard, owners: dict[str, str], who: str
) -> None:
    logger = logging.getLogger("toolplug.execution")
    logger.addHandler(heard)
    try:
        async with Watchdog(lambda: owners, lag_s=0.01):
            assert heard.first.wait(20)
    finally:
        logger.removeHandler(heard)
    assert len(heard.lines) == 1
    assert heard.lines[0].startswith(f"{who} holds up the event loop, ")
    assert "test_who_holds_up_the_loop" in heard.lines[0]
    assert "test_watchdog.py:" in heard.lines[0]
    assert "asyncio" not in heard.lines[0]
    # An author is told how; the host's own code is nobody's here.
    assert heard.lines[0].endswith("as a plain `def`, which runs in a thread") is (who != "the host")


@pytest.mark.requirement("H-provider-blocks-loop")
async def test_the_task_that_holds_up_the_loop_is_named(heard: _Heard) -> None:
    async def block() -> None:
        assert heard.first.wait(20)

    logger = logging.getLogger("toolplug.execution")
    logger.addHandler(heard)
    try:
        async with Watchdog(dict, lag_s=0.01):
            await asyncio.create_task(block(), name="toolplug-start()-notes")
    finally:
        logger.removeHandler(heard)
    assert ", in the task 'toolplug-start()-notes'" in heard.lines[0]


@pytest.mark.requirement("H-provider-blocks-loop")
async def test_a_loop_in_which_nothing_runs_is_late_and_held_up_by_nobody(heard: _Heard) -> None:
    """Its own clock runs away, as that of a process that gets no processor."""
    ahead = itertools.count()
    logger = logging.getLogger("toolplug.execution")
    logger.addHandler(heard)
    try:
        async with Watchdog(dict, clock=lambda: float(next(ahead))):
            while not heard.first.is_set():
                await asyncio.sleep(0.05)
    finally:
        logger.removeHandler(heard)
    assert heard.lines[0].startswith("the event loop is late, ")
    assert heard.lines[0].endswith("nothing runs in it, so the process was paused or waits for a processor")
