"""Processes that are killed while scripts run: no effect twice, and none of them unsaid."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("kill_child.py")
_wait = threading.Event().wait


def _kill_often(folder: Path, kills: int, seed: int) -> None:
    moments, ended, first = random.Random(seed), {}, 0
    forking = subprocess.Popen(
        [sys.executable, CHILD, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert forking.stdin is not None
    assert forking.stdout is not None
    with forking:
        for kill in range(kills + 1):
            print(first, file=forking.stdin, flush=True)
            lines = {forking.stdout.readline(), forking.stdout.readline()}
            assert "open\n" in lines, "the host does not open"
            pid = int(*(lines - {"open\n"}))
            try:
                # Any moment of the script that was interrupted before, which is repeated first, and of those after it;
                # after the last one, until that has ended, too.
                _wait(moments.uniform(0.0, 0.6))
                while kill == kills and first not in ended:
                    n, status, output = json.loads(forking.stdout.readline())
                    ended[n] = (status, output)
            finally:
                os.kill(pid, signal.SIGKILL)
            for line in iter(forking.stdout.readline, "gone\n"):
                n, status, output = json.loads(line)
                ended[n] = (status, output)
            first = max(ended, default=-1) + 1
        forking.stdin.close()
    made = Counter((folder / "effects").read_text().split())
    assert {item: count for item, count in made.items() if count > 1} == {}
    assert len(ended) >= kills
    assert {status for status, _ in ended.values()} <= {"success", "tool_error"}
    for n, (status, output) in ended.items():
        own = {item for item in made if item.partition("-")[0] == str(n)}
        if status == "success":
            assert own == {f"{n}-{each}" for each in "abcd"}
        else:
            assert "outcome of tool" in output, output
            assert all(item in output for item in own), (own, output)


@pytest.mark.process
@pytest.mark.requirement("I37-kills")
def test_a_process_that_is_killed_makes_no_effect_twice(tmp_path: Path) -> None:
    _kill_often(tmp_path, 4, 7)


@pytest.mark.long(50)
@pytest.mark.judge
@pytest.mark.requirement("I37-kills")
def test_processes_that_are_killed_make_no_effect_twice(tmp_path: Path) -> None:
    """`TOOLPLUG_KILLS=1000` kills as often; that takes seven minutes."""
    _kill_often(tmp_path, int(os.environ.get("TOOLPLUG_KILLS", "100")), random.randrange(1_000_000))
