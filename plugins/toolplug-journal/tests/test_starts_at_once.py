"""Several processes that open the journal of one folder at once: one makes it, and all of them start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from toolplug_journal.database import FILE, Database, Retention

pytestmark = [pytest.mark.process, pytest.mark.requirement("I2-8-journal")]

PROCESSES = 4
FOLDERS = 25


@contextmanager
def preparing() -> Iterator[subprocess.Popen[str]]:
    child = Path(__file__).with_name("preparing_child.py")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, str(child)], text=True, bufsize=1, **pipes) as process:  # pyright: ignore
        try:
            yield process
        finally:
            process.kill()


def test_processes_that_begin_at_once_make_one_journal(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(preparing()) for _ in range(PROCESSES)]
        for number in range(FOLDERS):
            folder = tmp_path / str(number)
            folder.mkdir()
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{folder}\n")
            answers = [process.stdout.readline().strip() for process in processes if process.stdout is not None]
            assert answers == ["ready"] * PROCESSES
            assert Database(folder / FILE, Retention(keep_s=100.0, max_rows=3)).count() == 0
