"""Daemon threads for the synchronous tools of one provider.

Not an executor's pool: those are joined at exit, so one hung tool would hang the process. A thread that is idle for
half a minute ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from toolplug.catalog.call import CallContext, ToolCall, enter_frame
from toolplug.catalog.plan import Target
from toolplug.execution.task_runner import RunningCall

# A daemon thread for one piece of the host's own work that blocks.
#
# Not `asyncio.to_thread`: the loop's pool has a handful of threads and belongs to every provider too, so that a few
# calls of theirs that hang there would keep the host from answering a scrape, fetching a key or reading its
# configuration.

T = TypeVar("T")


async def in_own_thread(function: Callable[[], T]) -> T:
    """Call it in a thread of its own; what it raises is raised here.

    If the caller is cancelled, the thread runs on and its outcome is dropped. Raises `RuntimeError` where the process
    can have no more threads.
    """
    return await asyncio.wrap_future(begun_in_own_thread(function))


def begun_in_own_thread(function: Callable[[], T]) -> Future[T]:
    """The same for who waits without a loop: it runs, with the caller's context variables, and cannot be cancelled."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()
    call = partial(copy_context().run, function)
    threading.Thread(target=_work, args=(outcome, call), name="toolplug-work", daemon=True).start()
    return outcome


def _work(outcome: Future[T], call: Callable[[], T]) -> None:
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001  raised again where it is awaited
        outcome.set_exception(error)


IDLE_S = 30.0

_Work = tuple[RunningCall, Context, Callable[[], object], asyncio.AbstractEventLoop]


class DaemonThreads:
    """Threads of one provider, made when needed; how many may work at once is the business of its limiter."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def start(self, target: Target, call: ToolCall, context: CallContext, /) -> RunningCall:
        """Run the target in a thread, in a copy of the current context, in which the tenant is the caller's.

        Raises `RuntimeError` when the provider is closed, or when the process can have no more threads.
        """
        if self._closed:
            raise RuntimeError("the provider is closed")
        loop = asyncio.get_running_loop()
        own = copy_context()
        own.run(enter_frame, context.principal.tenant)
        running = RunningCall(loop, None)
        with self._lock:
            grows = self._idle == 0
            if not grows:
                self._idle -= 1
        if grows:
            thread = threading.Thread(target=self._main, name=f"toolplug-{self._name}", daemon=True)
            thread.start()
            self._threads.add(thread)
        self._work.put((running, own, partial(target, call, context), loop))
        return running

    def close(self) -> None:
        """Let the threads end as soon as their work has; a hung tool keeps its own until the process ends."""
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

    def _perform(
        self, running: RunningCall, context: Context, function: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:  # noqa: BLE001  the tool's own end: `run` decides what becomes of it
            error = raised
        with self._lock:
            self._idle += 1  # before its caller hears of the end: whoever calls again at once needs no other thread
        try:
            loop.call_soon_threadsafe(running.finish, value, error)
        except RuntimeError:  # the loop was closed while the tool ran: nobody waits any more
            return
