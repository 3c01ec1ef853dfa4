"""A function that blocks, called from a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context

from toolplug.client.outcome import Outcome


async def in_thread(function: Callable[[], object], name: str, ended: Callable[[], None]) -> object:
    """What the function returns or raises, from a daemon thread of its own, under the caller's context variables.

    A thread cannot be cancelled: whoever waits may go, and `ended` is called once, on the loop, when the function has
    really come to its end. Daemon threads are not joined when the process exits.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()
    own = copy_context()

    def finish(outcome: Outcome) -> None:
        ended()
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        try:
            outcome = Outcome(value=own.run(function))
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            outcome = Outcome(error=error)
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(finish, outcome)

    try:
        threading.Thread(target=run, name=f"toolplug-{name}", daemon=True).start()
    except RuntimeError:
        ended()
        raise
    return (await done).reached()
