"""What is still there when everything should be gone: tasks, threads and child processes."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.01
_OWN_THREADS = ("asyncio_", "toolplug-")
"""The loop's pool for `to_thread`, and the threads of synchronous tools, which end on their own."""


@dataclass(frozen=True, slots=True)
class Held:
    """The tasks of the running loop, the threads of this process and its children, at one moment."""

    tasks: frozenset[asyncio.Task[object]]
    threads: frozenset[threading.Thread]
    children: frozenset[int]

    def since(self, before: Held) -> tuple[str, ...]:
        """What was not there before, for people."""
        return (
            *(f"task {task.get_name()}" for task in self.tasks - before.tasks),
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
            *(f"process {child}" for child in self.children - before.children),
        )


def held() -> Held:
    """What is there now."""
    threads = (thread for thread in threading.enumerate() if not thread.name.startswith(_OWN_THREADS))
    return Held(frozenset(asyncio.all_tasks()), frozenset(threads), frozenset(children()))


async def left_since(before: Held, within_s: float) -> tuple[str, ...]:
    """What came since then and is still there after so many seconds; empty as soon as everything is gone."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while left := held().since(before):
        if loop.time() >= until:
            return left
        await asyncio.sleep(_POLL_S)
    return ()


def children() -> set[int]:
    """The process ids of our children, zombies included; empty where `/proc` does not tell."""
    found: set[int] = set()
    for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        try:
            found.update(int(child) for child in path.read_text().split())
        except OSError:
            continue  # the thread ended between the listing and the reading
    return found
