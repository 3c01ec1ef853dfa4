"""Processes that are killed while scripts run: no effect twice, and none of them unsaid."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("kill_child.py")


def _kill_often(folder: Path, kills: int, seed: int) -> None:
    moments, ended, first = random.Random(seed), {}, 0
    for _ in range(kills):
        child = subprocess.Popen([sys.executable, CHILD, str(folder), str(first)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        try:
            lines = [child.stdout.readline()]  # it runs scripts now
            assert lines[0], "the child has ended by itself"
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(moments.uniform(0.0, 0.3))
        finally:
            child.kill()
            lines += child.stdout.readlines()
            child.stdout.close()
            child.wait()
        for line in lines:
            if line.endswith("\n"):
                n, status, output = json.loads(line)
                ended[n] = (status, output)
        first = max(ended) + 1
    made = Counter((folder / "effects").read_text().split())
    assert {item: count for item, count in made.items() if count > 1} == {}
    assert len(ended) >= kills
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
    _kill_often(tmp_path, 2, 7)


@pytest.mark.judge
@pytest.mark.requirement("I37-kills")
def test_processes_that_are_killed_make_no_effect_twice(tmp_path: Path) -> None:
    """`TOOLPLUG_KILLS=1000` kills as often; it takes two to four seconds each."""
    _kill_often(tmp_path, int(os.environ.get("TOOLPLUG_KILLS", "12")), random.randrange(1_000_000))
