"""The processes of a container, as the host sees them in `/proc`: which there are, what they use, stopping them all."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from time import monotonic
from typing import NamedTuple

_COUNTED_FOR_EACH = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", re.MULTILINE)
_COUNTED_ONCE = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", re.MULTILINE)
_NEVER_SHARED = re.compile(rb"^(?:VmPTE|HugetlbPages):\s+(\d+) kB", re.MULTILINE)
_STOP_PENDING = re.compile(rb"^ShdPnd:\s+[0-9a-f]*[4-7c-f][0-9a-f]{4}$", re.MULTILINE)
"""The 19th bit, of `SIGSTOP`, in a line of `/proc/PID/status`."""
_KIB = 1024
_STOP_S = 5.0
_LOOK_S = 0.0005


def descendants(process: int) -> list[int]:
    """Return the processes below this one; one that begins or ends at this moment may be missing."""
    found: list[int] = []
    todo = [process]
    while todo:
        for child in _children(todo.pop()):
            found.append(child)
            todo.append(child)
    return found


async def stop_all(process: int) -> bool:
    """Stop the processes below this one, in a way that they cannot prevent; False if they do not stay stopped.

    A thread that has called `vfork` waits until its child runs another program, in the state D, and stops after that:
    while the child is stopped, it counts as stopped if the signal is sure to reach it.

    Two looks in a row that find all of them stopped are needed: until the first has ended, one may wake another.
    """
    until = monotonic() + _STOP_S
    quiet = 0
    while monotonic() < until:
        running = [each for each in descendants(process) if not _is_stopped(each)]
        quiet = 0 if running else quiet + 1
        if quiet == 2:
            return True
        if running:
            _signal(process, running, signal.SIGSTOP)
            await asyncio.sleep(_LOOK_S)
    return False


def send_stop(process: int) -> None:
    """Signal all processes below this one to stop, without waiting; a process that is signalled forks no other."""
    known: set[int] = set()
    while new := set(descendants(process)) - known:
        _signal(process, new, signal.SIGSTOP)
        known |= new


def resume_all(process: int) -> None:
    """Let the processes below this one go on."""
    _signal(process, descendants(process), signal.SIGCONT)


def interrupt(process: int, worker: int) -> None:
    """Raise `KeyboardInterrupt` in the worker of a container, by its init and its own number."""
    _signal(process, [worker], signal.SIGINT)


class MemoryUse(NamedTuple):
    """The memory of a container's processes together, and how many they are."""

    bytes: int
    processes: int


def memory_use(process: int, *, enough: int) -> MemoryUse:
    """Return the memory of this process and those below it, together.

    What forked processes share is counted once, which takes the kernel long: only if the sum with everything counted
    for each is over `enough`.
    """
    found = [process, *descendants(process)]
    texts = [_status(each) for each in found]
    own = sum(_kib(_NEVER_SHARED, text) for text in texts)
    total = own + sum(_kib(_COUNTED_FOR_EACH, text) for text in texts)
    if total * _KIB <= enough:
        return MemoryUse(total * _KIB, len(found))
    exact = [_read_or_none(f"/proc/{each}/smaps_rollup") or text for each, text in zip(found, texts, strict=True)]
    once = sum(_kib(_COUNTED_ONCE, text) or _kib(_COUNTED_FOR_EACH, text) for text in exact)
    return MemoryUse((own + once) * _KIB, len(found))


class DiskUse(NamedTuple):
    """The number of files of a file system, and their bytes."""

    files: int
    bytes: int


def disk_use(process: int, folder: str) -> DiskUse:
    """Return what a file system of the container holds; nothing once the container has ended."""
    try:
        state = os.statvfs(f"/proc/{process}/root{folder}")
    except OSError:
        return DiskUse(0, 0)
    return DiskUse(state.f_files - state.f_ffree, (state.f_blocks - state.f_bfree) * state.f_frsize)


def _children(process: int) -> list[int]:
    found = (_read_or_none(f"/proc/{process}/task/{thread}/children") for thread in _threads(process))
    return [int(each) for part in found for each in (part or b"").split()]


def _threads(process: int) -> list[str]:
    """Return the threads of a process, also of one whose first thread has ended while others go on."""
    try:
        return os.listdir(f"/proc/{process}/task")
    except OSError:
        return []


def _is_stopped(process: int) -> bool:
    """Return whether no thread runs, nor can return from the kernel to the code: all stopped, or the last one will."""
    stats = (_read_or_none(f"/proc/{process}/task/{thread}/stat") for thread in _threads(process))
    states = [stat.rpartition(b") ")[2][:1].upper() for stat in stats if stat is not None]
    alive = [state for state in states if state not in {b"Z", b"X"}]
    if b"D" not in alive:
        return all(state == b"T" for state in alive)
    if b"T" in alive:  # one has taken the signal for all
        return set(alive) == {b"T", b"D"}
    return alive == [b"D"] and _STOP_PENDING.search(_read_or_none(f"/proc/{process}/status") or b"") is not None


def _status(process: int) -> bytes:
    """Return the state of a process by a thread that has not ended: the others show no memory."""
    texts = (_read_or_none(f"/proc/{process}/task/{thread}/status") or b"" for thread in _threads(process))
    return next((text for text in texts if b"RssAnon:" in text), b"")


def _signal(process: int, chosen: Iterable[int], number: int) -> None:
    """Signal processes below the container's init, and no others that have their numbers by now."""
    with ExitStack() as opened:
        handles: dict[int, int] = {}
        for each in chosen:
            with suppress(ProcessLookupError):
                handles[each] = os.pidfd_open(each)
                opened.callback(os.close, handles[each])
        for each in descendants(process):
            if each in handles:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handles[each], number)


def _kib(pattern: re.Pattern[bytes], text: bytes) -> int:
    return sum(map(int, pattern.findall(text)))


def _read_or_none(path: str) -> bytes | None:
    """Return a file of `/proc`; None if its process has ended, or does not show it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts: list[bytes] = []
        while part := os.read(file, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(file)
