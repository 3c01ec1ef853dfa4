"""Background tasks, and long work that lets other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import TypeVar

SLICE_S = 0.005

T = TypeVar("T")


class BackgroundTasks:
    """Background tasks with strong references; the event loop alone holds them weakly."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, None, None], name: str) -> asyncio.Task[None]:
        """Run the work as a task of this name."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        """Wait for what runs now and raise the first error of it; cancels it where the caller is cancelled."""
        await asyncio.gather(*self._tasks)

    async def cancel(self) -> None:
        """Cancel what runs and wait until it has ended; errors are not raised."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)


async def in_slices(items: Iterable[T], *, slice_s: float = SLICE_S) -> AsyncGenerator[T]:
    """Each item; after every `slice_s` seconds of making and using them, other tasks have a turn of the loop."""
    clock = asyncio.get_running_loop().time
    began = clock()
    for item in items:
        yield item
        if clock() - began > slice_s:
            await asyncio.sleep(0)
            began = clock()
