"""How often a process looks for cyclic garbage: one that serves for long, and one of a command."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from weakref import ref

import pytest

from toolplug.cli.main import COLLECTED_AFTER
from toolplug.cli.serving.over_http import THRESHOLDS, rarely_collected


class Knot:
    """Refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def frozen_again() -> Iterator[None]:
    """Freezes again what the run had frozen (`tests/conftest.py`)."""
    yield
    gc.freeze()


def test_what_stands_at_the_start_is_left_alone_while_it_serves() -> None:
    standing = gc.get_freeze_count()
    with rarely_collected():
        assert gc.get_freeze_count() > standing
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_freeze_count() == 0


def test_the_process_is_given_back_as_it_was() -> None:
    before = gc.get_threshold()
    with rarely_collected():
        pass
    assert gc.get_threshold() == before


def test_garbage_that_comes_while_it_serves_is_still_found() -> None:
    with rarely_collected():
        knot = ref(Knot())
        gc.collect()
        assert knot() is None


@pytest.mark.process
def test_a_command_is_rarely_collected_and_a_program_that_runs_one_as_before() -> None:
    program = "import gc, sys; from toolplug.cli.main import main; {}; print(gc.get_threshold()[0])"
    printed = [
        subprocess.run(
            [sys.executable, "-c", program.format(call), "--version"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[-1]
        for call in ("main()", "main(['--version'])", "pass")
    ]
    assert printed[0] == str(COLLECTED_AFTER)
    assert printed[1] == printed[2] != printed[0]
