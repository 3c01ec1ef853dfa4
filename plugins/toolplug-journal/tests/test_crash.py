"""What a caller was told survives the death of the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

ANSWERED = 40


def answered_before_a_kill(folder: Path) -> list[str]:
    """The calls that a host in another process said to have answered, when it is dead."""
    child = Path(__file__).with_name("crash_child.py")
    with subprocess.Popen([sys.executable, str(child), str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        answered = [process.stdout.readline().strip() for _ in range(ANSWERED)]
        process.kill()
    return answered


@pytest.mark.anyio
@pytest.mark.requirement("I2-8-journal")
async def test_every_call_that_was_answered_before_a_kill_is_in_the_journal(
    in_process_host: Callable[..., AbstractAsyncContextManager[Any]], tmp_path: Path
) -> None:
    answered = answered_before_a_kill(tmp_path)
    async with in_process_host({"providers": {"journal": {"enabled": True}}}) as served:
        calls = (await served.client.get("/v1/journal?limit=1000")).json()["calls"]
    kept = {call["call_id"]: call["status"] for call in calls}
    assert {number: kept.get(number) for number in answered} == dict.fromkeys(answered, "success")
