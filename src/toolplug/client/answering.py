"""Answering one request: runs the tool's function in a task or thread and turns the outcome into one answer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import NamedTuple, cast

from toolplug.catalog.call import CallContext
from toolplug.client.tool import Tool
from toolplug.errors import HostError, InvalidArguments, ToolError
from toolplug.signatures.values import as_json


class Outcome(NamedTuple):
    """A value, or whatever was raised in its place."""

    value: object = None
    error: BaseException | None = None

    def reached(self) -> object:
        """The value. Raises what the function raised."""
        if self.error is not None:
            raise self.error
        return self.value


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


_LOG = logging.getLogger("toolplug.client")

Answer = Mapping[str, object]
"""`{"result": JSON value}` or `{"error": text}`, which the model reads."""


async def answer(
    tool: Tool, arguments: Mapping[str, object], context: CallContext, places: asyncio.Semaphore
) -> Answer:
    """Call the tool as soon as there is a place for it. Only the caller's own cancellation is raised.

    A place is given back when the function itself has ended.
    """
    try:
        value = await _called(tool, tool.taken(arguments, context), places)
    except ToolError as error:
        return _said(str(error))
    except InvalidArguments as error:
        return _said("\n".join([f'invalid arguments for tool "{tool.name}"', *error.lines]))
    except asyncio.CancelledError as error:
        if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
            raise
        return _masked(tool, error)
    except BaseException as error:  # noqa: BLE001  a tool may raise anything; its caller learns nothing of it
        return _masked(tool, error)
    return _result(tool, value)


async def _called(tool: Tool, given: Mapping[str, object], places: asyncio.Semaphore) -> object:
    await places.acquire()
    if tool.blocking:
        return await in_thread(partial(tool.function, **given), tool.name, places.release)
    try:
        return await in_task(cast("Callable[[], Awaitable[object]]", partial(tool.function, **given)), tool.name)
    finally:
        places.release()


def _result(tool: Tool, value: object) -> Answer:
    try:
        json = as_json(value)
    except Exception as error:  # noqa: BLE001  a serializer is the tool's own code
        return _masked(tool, error)
    return {"error": f'result of tool "{tool.name}" is not JSON'} if json is None else {"result": json.value}


def _said(text: str) -> Answer:
    return {"error": text.encode("utf-8", "replace").decode()}


def _masked(tool: Tool, error: BaseException) -> Answer:
    _LOG.error("tool %r raised", tool.name, exc_info=error)
    return {"error": f'internal error: tool "{tool.name}" failed'}


MAX_MESSAGE = 1_000
"""Characters that a host takes."""


class Progress:
    """Sends the newest report as soon as the one before it has arrived; what it overtakes is dropped.

    `report` may be called from any thread and never waits.
    """

    def __init__(self, send: Callable[[Answer], Awaitable[object]]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._newest: Answer | None = None
        self._told = asyncio.Event()

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """As `CallContext.report`; what is not JSON is dropped."""
        given = {"progress": progress, "total": total, "message": message and message[:MAX_MESSAGE]}
        said = {key: value for key, value in given.items() if value is not None}
        if as_json(said) is not None:
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody listens any more
                self._loop.call_soon_threadsafe(self._note, said)

    async def run(self) -> None:
        """Send until cancelled. Progress that does not arrive is no fault of the call."""
        while True:
            await self._told.wait()
            self._told.clear()
            if self._newest is not None:
                with suppress(HostError):
                    await self._send(self._newest)

    def _note(self, said: Answer) -> None:
        self._newest = said
        self._told.set()
