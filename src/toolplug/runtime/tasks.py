"""Background tasks, and long work that lets other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from anyio import CancelScope

# One slice delays every other task by as much. An answer that waits for one still comes within the time that a person
# calls instant.
SLICE_S = 0.005

T = TypeVar("T")


class BackgroundTasks:
    """Background tasks with strong references; the event loop alone holds them weakly.

    ```python
    import asyncio

    from toolplug.runtime import BackgroundTasks

    async def main():
        tasks = BackgroundTasks()
        tasks.start(asyncio.sleep(60), "nap")
        assert len(tasks) == 1
        await tasks.cancel()

    asyncio.run(main())
    ```
    """

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


KEEPING_S = 2.0
"""Seconds for which work in the background may keep the results of calls that have ended, when the host closes."""


async def wait_for_results(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait for tasks whose calls have ended, at most `KEEPING_S`; errors are not raised."""
    if tasks:
        await asyncio.wait(tasks, timeout=KEEPING_S)


class JoinedRuns:
    """Runs of one function for sets of keys: all that ask before a run begins share it."""

    def __init__(self, run: Callable[[set[str]], Coroutine[object, None, None]], name: str) -> None:
        self._run = run
        self._name = name
        self._next: tuple[set[str], asyncio.Task[None]] | None = None
        self._tasks = BackgroundTasks()

    async def join(self, *keys: str) -> None:
        """Wait for a run that begins after this call and includes these keys. Raises what it raises."""
        if self._next is None:
            self._next = set[str](), self._tasks.start(self._begin(), self._name)
        # Read before waiting: `_begin` takes the pair away as soon as the run begins, and later keys then belong to the
        # next run.
        wanted, task = self._next
        wanted.update(keys)
        # One of several that share the run may be cancelled; the others still need it.
        await asyncio.shield(task)

    async def aclose(self) -> None:
        """Cancel the runs, and wait until they have ended."""
        await self._tasks.cancel()

    async def _begin(self) -> None:
        assert self._next is not None, "join sets it before this begins"
        wanted, _ = self._next
        self._next = None
        await self._run(wanted)


class SingleFlight(Generic[T]):
    """One run of a function at a time: all that ask while it goes on share its result, or its error."""

    def __init__(self, run: Callable[[], Coroutine[object, None, T]], name: str) -> None:
        self._run = run
        self._name = name
        self._task: asyncio.Task[T] | None = None

    async def join(self) -> T:
        """Return the result of the run that goes on, or else of a new one, which goes on if the caller is cancelled."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=self._name)
            self._task.add_done_callback(_retrieve)
        return await asyncio.shield(self._task)

    async def aclose(self) -> None:
        """Cancel the run, and wait until it has ended."""
        if self._task is not None:
            self._task.cancel()
            # Not awaited itself: `asyncio.wait` raises neither its error nor its cancellation.
            await asyncio.wait({self._task})


def _retrieve(task: asyncio.Task[T]) -> None:
    """Take note of the error of a task for which nobody may wait any longer."""
    if not task.cancelled():
        task.exception()


async def in_slices(items: Iterable[T], *, slice_s: float = SLICE_S) -> AsyncGenerator[T]:
    """Each item; after every `slice_s` seconds of making and using them, other tasks have a turn of the loop."""
    clock = asyncio.get_running_loop().time
    began = clock()
    for item in items:
        yield item
        if clock() - began > slice_s:
            await asyncio.sleep(0)
            began = clock()


class OpeningFailed(Exception):
    """The life of an `OwnedTask` ended before it handed anything out; `__cause__` is what it raised, if anything."""


class OwnedTask(Generic[T]):
    """A task that opens something, hands it out, and closes it again when it is asked to end.

    One task does both, so that what is opened may use task groups and timeouts. `life(owned)` calls `hand_out` once and
    returns after `ended` is set, or earlier by itself, and then `ended` is set too. `on_end` is called once with the
    error of the life, or None, before those that wait in `wait_open` hear of it.
    """

    def __init__(
        self,
        life: Callable[[OwnedTask[T]], Coroutine[object, None, None]],
        *,
        name: str,
        on_end: Callable[[OwnedTask[T], BaseException | None], None] | None = None,
    ) -> None:
        self.ended: asyncio.Event = asyncio.Event()
        self._on_end = on_end
        self._opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(life), name=name)

    def hand_out(self, value: T) -> None:
        """Give the value to those that wait in `wait_open`; without effect once the task was told to end."""
        if not self._opened.done():
            self._opened.set_result(value)

    async def wait_open(self) -> T:
        """Wait for the value. Raises `OpeningFailed`."""
        return await asyncio.shield(self._opened)

    async def end(self, within_s: float) -> bool:
        """Tell the task to end, wait for at most so many seconds, and return whether it has ended.

        A task that is still opening is cancelled at once, one that has not ended in time afterwards. The wait goes on
        if the caller is cancelled; that is raised at its end.
        """
        self.ended.set()
        if not self._opened.done():
            self._fail(None)
            self._task.cancel()
        loop = asyncio.get_running_loop()
        until, cancelled = loop.time() + within_s, None
        # `asyncio.shield` would not do: an anyio scope around the caller delivers its cancellation again at each await,
        # so that the loop below would spin instead of waiting.
        with CancelScope(shield=True):
            while not self._task.done() and (left := until - loop.time()) > 0:
                try:
                    await asyncio.wait({self._task}, timeout=left)
                # Remembered and raised at the end: what was opened has to be closed even if the caller leaves.
                except asyncio.CancelledError as error:
                    cancelled = error
        in_time = self._task.done()
        self._task.cancel()
        if cancelled is not None:
            raise cancelled
        return in_time

    async def _run(self, life: Callable[[OwnedTask[T]], Coroutine[object, None, None]]) -> None:
        raised: BaseException | None = None
        try:
            await life(self)
        except asyncio.CancelledError:
            # A cancellation that `end` has asked for is the expected end; any other one is from outside and goes on.
            if not self.ended.is_set():
                raise
        except BaseException as error:  # noqa: BLE001  a SystemExit that leaves a task ends the loop
            raised = error
        finally:
            # In this order: whoever is woken by `on_end` or by the failed future finds the state final.
            self.ended.set()
            if self._on_end is not None:
                self._on_end(self, raised)
            self._fail(raised)

    def _fail(self, error: BaseException | None) -> None:
        if not self._opened.done():
            failed = OpeningFailed()
            failed.__cause__ = error
            self._opened.set_exception(failed)
            self._opened.exception()  # nobody may wait for it
