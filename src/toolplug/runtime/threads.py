"""Daemon threads for work that blocks.

Not an executor's pool: those are joined at exit, so one hung function would hang the process. Nor `asyncio.to_thread`:
the loop's pool has a handful of threads and belongs to every provider too, so that a few calls that hang there would
keep the host from answering a scrape, fetching a key or reading its configuration.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from time import sleep
from types import ModuleType
from typing import Any, TypeVar, cast

T = TypeVar("T")
_CLOSED = "the provider is closed"


def release_interpreter() -> None:
    """Let other threads have the lock of the interpreter, which a thread that computes keeps for up to 5 ms."""
    # A clock that a library steps (libfaketime) refuses a sleep of no time; the lock was released even so.
    with suppress(OSError):
        sleep(0)


async def in_own_thread(function: Callable[[], T]) -> T:
    """Call it in a thread of its own; what it raises is raised here.

    If the caller is cancelled, the thread runs on and its outcome is dropped. Raises `RuntimeError` where the process
    can have no more threads.
    """
    return await asyncio.wrap_future(begun_in_own_thread(function))


_IMPORTED: dict[str, ModuleType] = {}


async def import_in_thread(name: str, *, after: str = "") -> Any:
    """Import a module in a thread of its own, as a large one would hold up the loop, and return it.

    `after` names a package that is imported as a whole before it: of two threads that import different parts of one at
    the same time, one can get an incomplete module. Raises what the import raises.
    """
    module = _IMPORTED.get(name)
    if module is None:
        names = (after, name) if after else (name,)
        module = _IMPORTED[name] = await in_own_thread(lambda: [import_module(each) for each in names][-1])
    return module


def begun_in_own_thread(function: Callable[[], T], *, name: str = "toolplug-work") -> Future[T]:
    """The same for a caller that waits without a loop, or not at all.

    The function runs with the caller's context variables and cannot be cancelled.
    """
    outcome: Future[T] = Future()
    # From here on the future cannot be cancelled: its function runs in any case, and a cancelled future would refuse
    # the result in `_work`.
    outcome.set_running_or_notify_cancel()
    call = partial(copy_context().run, function)
    # Daemon: a function that hangs must not keep the process from ending.
    threading.Thread(target=_work, args=(outcome, call), name=name, daemon=True).start()
    return outcome


def _work(outcome: Future[T], call: Callable[[], T]) -> None:
    # `Thread.start` waits for this thread to run: without a release of the interpreter's lock until the function makes
    # one, which is up to 5 ms of the loop.
    release_interpreter()
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001  raised again where it is awaited
        outcome.set_exception(error)


IDLE_S = 30.0
"""A thread of `DaemonThreads` that has had nothing to do for so long ends."""

Done = Callable[[object, BaseException | None], None]
"""Is given the value of a function, or what it raised."""

_Work = tuple[Callable[[], object], Done, asyncio.AbstractEventLoop]


class DaemonThreads:
    """Threads that are made when needed and used again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def start(self, function: Callable[[], object], done: Done) -> None:
        """Call the function in a thread; `done` is called on the running loop when it has ended.

        Raises `RuntimeError` when closed, or when the process can have no more threads.
        """
        if self._closed:
            raise RuntimeError(_CLOSED)
        loop = asyncio.get_running_loop()
        with self._lock:
            # Counted by hand: `SimpleQueue.qsize` says what waits, not how many threads are free to take it. Without
            # the lock two callers could count on the same idle thread, and one piece of work would wait behind a hung
            # one.
            grows = self._idle == 0
            if not grows:
                self._idle -= 1
        if grows:
            thread = threading.Thread(target=self._main, name=f"toolplug-{self._name}", daemon=True)
            thread.start()
            # After `start`, which raises where the process can have no more threads: a thread that never ran is not
            # kept.
            self._threads.add(thread)
        self._work.put((function, done, loop))

    def close(self) -> None:
        """Let the threads end as soon as their work has; one that hangs is left alone."""
        self._closed = True
        # One None for each: a thread takes exactly one and ends, and those that work take theirs afterwards.
        for _ in tuple(self._threads):
            self._work.put(None)

    def _main(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    # `start` has counted on this thread between the timeout and the lock, so its work is about to
                    # arrive.
                    if self._idle == 0:
                        continue
                    self._idle -= 1
                break
            if work is None:
                break
            self._perform(*work)
            # Else the frame of an idle thread would keep the arguments of its last call alive for thirty seconds.
            del work
        self._threads.discard(threading.current_thread())

    def _perform(self, function: Callable[[], object], done: Done, loop: asyncio.AbstractEventLoop) -> None:
        value, error = None, None
        try:
            value = function()
        except BaseException as raised:  # noqa: BLE001  given to `done`
            error = raised
        with self._lock:
            self._idle += 1  # before its caller hears of the end: a caller that continues at once reuses this thread
        try:
            loop.call_soon_threadsafe(done, value, error)
        except RuntimeError:  # the loop was closed while the function ran: nobody waits any more
            return


POOL_THREADS = 8
"""Threads of one `FairThreads`; one owner has at most half of them at a time."""

POOL_WAITING = 1024
"""Functions of one owner that may wait for a thread of one `FairThreads`."""


class TooManyWaiting(RuntimeError):
    """So many functions of this owner wait for a thread already: `POOL_WAITING`.

    ```python
    from toolplug import ProviderContext, ToolError
    from toolplug.runtime import TooManyWaiting

    async def read(site: ProviderContext, name: str) -> str:
        try:
            return await site.in_thread(open(name).read)
        except TooManyWaiting:
            raise ToolError("too many files are being read; try again in a moment") from None
    ```
    """


class _Waiting:
    """A function that waits for a thread, or runs in one, and the future of its caller."""

    __slots__ = ("function", "outcome", "owner")

    def __init__(self, owner: str, function: Callable[[], object], outcome: asyncio.Future[object]) -> None:
        self.owner = owner
        self.function = function
        self.outcome = outcome


class FairThreads:
    """A bounded pool of threads for the blocking work of one provider, shared fairly by its tenants.

    The owners that wait get a thread in turn, and one owner holds at most half of the threads: however slow the work of
    one tenant is, the others wait for their own only. Belongs to one event loop.
    """

    def __init__(self, name: str, threads: int = POOL_THREADS) -> None:
        self._threads = DaemonThreads(name)
        self._free = threads
        # Half, so that one tenant's slow work always leaves threads to the others; a pool of one thread still works.
        self._share = max(1, threads // 2)
        self._running: dict[str, int] = {}
        self._closed = False
        self._waiting: OrderedDict[str, deque[_Waiting]] = OrderedDict()

    async def run(self, owner: str, function: Callable[[], T]) -> T:
        """Call the function in a thread, with the caller's context variables; what it raises is raised here.

        If the caller is cancelled, a function that still waits is never called; one that runs goes on to its end and
        keeps its thread until then. Raises `TooManyWaiting`, and `RuntimeError` when closed.
        """
        if self._closed:
            raise RuntimeError(_CLOSED)
        queue = self._waiting.get(owner)
        if queue is not None and len(queue) >= POOL_WAITING:
            raise TooManyWaiting(f"{POOL_WAITING} functions wait for a thread already")
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        work = _Waiting(owner, partial(copy_context().run, function), cast("asyncio.Future[object]", outcome))
        if queue is None:
            queue = self._waiting[owner] = deque()
        queue.append(work)
        self._start()
        return await outcome

    def close(self) -> None:
        """Let the threads end when their work ends, and refuse what waits."""
        self._closed = True
        self._threads.close()
        for queue in self._waiting.values():
            for work in queue:
                if not work.outcome.done():
                    work.outcome.set_exception(RuntimeError(_CLOSED))
        self._waiting.clear()

    def _start(self) -> None:
        """Give each free thread to the next owner in turn that is below its share."""
        while self._free and (work := self._next()) is not None:
            try:
                self._threads.start(work.function, partial(self._end, work))
            except RuntimeError as error:
                work.outcome.set_exception(error)
                continue
            self._free -= 1
            self._running[work.owner] = self._running.get(work.owner, 0) + 1

    def _next(self) -> _Waiting | None:
        # A copy: the loop removes owners and puts them back at the end, which makes the turn go round.
        for owner, queue in [*self._waiting.items()]:
            while queue and queue[0].outcome.done():  # its caller was cancelled
                queue.popleft()
            if not queue:
                del self._waiting[owner]
            elif self._running.get(owner, 0) < self._share:
                work = queue.popleft()
                del self._waiting[owner]
                if queue:
                    self._waiting[owner] = queue  # the last in turn
                return work
        return None

    def _end(self, work: _Waiting, value: object, error: BaseException | None) -> None:
        self._free += 1
        self._running[work.owner] -= 1
        if not self._running[work.owner]:
            del self._running[work.owner]
        if not work.outcome.done():
            if error is None:
                work.outcome.set_result(value)
            elif isinstance(error, StopIteration):  # a future refuses it
                work.outcome.set_exception(RuntimeError("the function raised StopIteration"))
            else:
                work.outcome.set_exception(error)
        self._start()
