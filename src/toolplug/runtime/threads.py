"""Daemon threads for work that blocks.

Not an executor's pool: those are joined at exit, so one hung function would hang the process. Nor `asyncio.to_thread`:
the loop's pool has a handful of threads and belongs to every provider too, so that a few calls that hang there would
keep the host from answering a scrape, fetching a key or reading its configuration.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(function: Callable[[], T]) -> T:
    """Call it in a thread of its own; what it raises is raised here.

    If the caller is cancelled, the thread runs on and its outcome is dropped. Raises `RuntimeError` where the process
    can have no more threads.
    """
    return await asyncio.wrap_future(begun_in_own_thread(function))


def begun_in_own_thread(function: Callable[[], T], *, name: str = "toolplug-work") -> Future[T]:
    """The same for a caller that waits without a loop, or not at all.

    The function runs with the caller's context variables and cannot be cancelled.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()
    call = partial(copy_context().run, function)
    threading.Thread(target=_work, args=(outcome, call), name=name, daemon=True).start()
    return outcome


def _work(outcome: Future[T], call: Callable[[], T]) -> None:
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
            raise RuntimeError("the provider is closed")
        loop = asyncio.get_running_loop()
        with self._lock:
            grows = self._idle == 0
            if not grows:
                self._idle -= 1
        if grows:
            thread = threading.Thread(target=self._main, name=f"toolplug-{self._name}", daemon=True)
            thread.start()
            self._threads.add(thread)
        self._work.put((function, done, loop))

    def close(self) -> None:
        """Let the threads end as soon as their work has; one that hangs is left alone."""
        self._closed = True
        for _ in tuple(self._threads):
            self._work.put(None)

    def _main(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._idle == 0:
                        continue
                    self._idle -= 1
                break
            if work is None:
                break
            self._perform(*work)
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
