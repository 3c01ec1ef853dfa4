"""A daemon thread for one piece of the host's own work that blocks.

Not `asyncio.to_thread`: the loop's pool has a handful of threads and belongs to every provider too, so that a few calls
of theirs that hang there would keep the host from answering a scrape, fetching a key or reading its configuration.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import TypeVar

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
