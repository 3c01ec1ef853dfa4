"""The processes that a process has started, and they in turn, wherever they have put themselves meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_PARENT, _STARTED = 1, 19
"""Fields of `/proc/<pid>/stat` after the name, counted from the state: proc_pid_stat(5)."""


class Descendant(NamedTuple):
    """A process; with the time of its start, since ids are used again."""

    pid: int
    started: int


def descendants(pid: int) -> Collection[Descendant]:
    """Those that live now, in sessions and groups of their own as well; none where the system has no `/proc`.

    One whose parent has ended is nobody's any more, and not among them.
    """
    children: dict[int, list[Descendant]] = {}
    for process, parent in _every():
        children.setdefault(parent, []).append(process)
    found = list(children.get(pid, ()))
    for process in found:  # grows while it is walked
        found += children.get(process.pid, ())
    return found


def kill(processes: Collection[Descendant]) -> None:
    """Kill those that still live."""
    for process in processes:
        if _started(process.pid) == process.started:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)


def _every() -> Iterator[tuple[Descendant, int]]:
    """Every process, and its parent."""
    names = os.listdir(_PROC) if _PROC.is_dir() else ()
    for name in names:
        fields = _fields(int(name)) if name.isdigit() else ()
        if fields:
            yield Descendant(int(name), int(fields[_STARTED])), int(fields[_PARENT])


def _started(pid: int) -> int | None:
    fields = _fields(pid)
    return int(fields[_STARTED]) if fields else None


def _fields(pid: int) -> list[str]:
    """What is told of a process after its name, which may hold anything; nothing where it has gone."""
    try:
        return (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
