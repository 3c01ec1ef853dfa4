"""Several processes that open the index of one folder at once: one makes it, and all of them start."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROCESSES = 6
FOLDERS = 60
OPENING = """
import sys
from pathlib import Path
from toolplug_file_search.storage.database import Database
for line in sys.stdin:
    try:
        Database(Path(line.strip())).close()
        print("ready", flush=True)
    except Exception as error:
        print(repr(error), flush=True)
"""


def opening() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OPENING]
    return subprocess.Popen(command, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_processes_that_begin_at_once_make_one_index(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(opening()) for _ in range(PROCESSES)]
        for process in processes:
            stack.callback(process.kill)
        for number in range(FOLDERS):
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{tmp_path / str(number)}.db\n")
            answers = [process.stdout.readline().strip() for process in processes if process.stdout is not None]
            assert answers == ["ready"] * PROCESSES
