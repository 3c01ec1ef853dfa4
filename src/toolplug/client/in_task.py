"""A coroutine function, called in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from toolplug.client.outcome import Outcome


async def in_task(function: Callable[[], Awaitable[object]], name: str) -> object:
    """What the function returns or raises, whatever it does to its task.

    A function that cancels itself raises `CancelledError` here and leaves whoever waits uncancelled; one whose waiter
    is cancelled is cancelled too, and waited for.
    """
    return (await asyncio.create_task(_outcome(function), name=f"toolplug call of {name}")).reached()


async def _outcome(function: Callable[[], Awaitable[object]]) -> Outcome:
    try:
        return Outcome(value=await function())
    except BaseException as error:  # noqa: BLE001  raised again where it is waited for; in a task it would end the loop
        return Outcome(error=error)
