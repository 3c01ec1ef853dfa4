"""Answering a request: runs the tool's function in a task or thread and sends one answer."""

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
from toolplug.signatures.values import as_json, why_not_json

Answer = Mapping[str, object]
"""`{"result": JSON value}` or `{"error": text}`, which the model reads."""

MAX_MESSAGE = 1_000
"""Characters of a progress message that a host accepts."""

_LOG = logging.getLogger("toolplug.client")


async def answer(
    tool: Tool,
    arguments: Mapping[str, object],
    context: CallContext,
    places: asyncio.Semaphore,
    *,
    call_id: str = "",
) -> Answer:
    """Call the tool as soon as one of the `places` is free. Raises only the caller's own cancellation.

    A place is released when the function has ended. `call_id` and the context's request id are for the log.
    """
    named = (("call", call_id), ("request", context.request_id))
    ids = ", ".join(f"{name} {value}" for name, value in named if value)
    try:
        value = await _call(tool, tool.taken(arguments, context), places)
    except ToolError as error:
        return _error_answer(str(error))
    except InvalidArguments as error:
        return _error_answer("\n".join([f'invalid arguments for tool "{tool.name}"', *error.lines]))
    except asyncio.CancelledError as error:
        # Cancelled from outside; otherwise the tool has raised it itself, which is a failure of the tool.
        if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
            raise
        return _masked_answer(tool, error, ids)
    except BaseException as error:  # noqa: BLE001  a tool may raise anything; its caller learns nothing of it
        return _masked_answer(tool, error, ids)
    return _result_answer(tool, value, ids)


async def _call(tool: Tool, given: Mapping[str, object], places: asyncio.Semaphore) -> object:
    # Not `async with`: a thread goes on after its caller was cancelled, and keeps its place until it ends.
    await places.acquire()
    if tool.blocking:
        return await _call_in_thread(partial(tool.function, **given), tool.name, places.release)
    try:
        return await _call_in_task(cast("Callable[[], Awaitable[object]]", partial(tool.function, **given)), tool.name)
    finally:
        places.release()


def _result_answer(tool: Tool, value: object, ids: str) -> Answer:
    try:
        json = as_json(value)
    except Exception as error:  # noqa: BLE001  a serializer is the tool's own code
        return _masked_answer(tool, error, ids)
    if json is not None:
        return {"result": json.value}
    fault = why_not_json(value)
    _LOG.error(
        "result of tool %r is not JSON: %s%s", tool.name, fault, f" ({ids})" if ids else "", exc_info=fault.__cause__
    )
    return {"error": f'result of tool "{tool.name}" is not JSON'}


def _error_answer(text: str) -> Answer:
    # A lone surrogate is no JSON, and an error must reach the model in any case.
    return {"error": text.encode("utf-8", "replace").decode()}


def _masked_answer(tool: Tool, error: BaseException, ids: str) -> Answer:
    """Return the answer for a function that raised; the log has the full traceback, as it is the application's own."""
    _LOG.error("tool %r raised%s", tool.name, f" ({ids})" if ids else "", exc_info=error)
    return {"error": f'internal error: tool "{tool.name}" failed'}


class _Outcome(NamedTuple):
    """The value that a function returned, or the exception that it raised."""

    value: object = None
    error: BaseException | None = None

    def unwrap(self) -> object:
        """Return the value, or raise what the function raised."""
        if self.error is not None:
            raise self.error
        return self.value


async def _call_in_task(function: Callable[[], Awaitable[object]], name: str) -> object:
    """Return or raise what the function does, in its own task.

    A function that cancels its task raises `CancelledError` here and does not cancel the caller. If the caller is
    cancelled, so is the function, and the caller waits for its end.
    """

    async def run() -> _Outcome:
        try:
            return _Outcome(value=await function())
        except BaseException as error:  # noqa: BLE001  raised again by `unwrap`; in a task it would end the loop
            return _Outcome(error=error)

    return (await asyncio.create_task(run(), name=f"toolplug call of {name}")).unwrap()


async def _call_in_thread(function: Callable[[], object], name: str, ended: Callable[[], None]) -> object:
    """Return or raise what the function does, in its own daemon thread, with the caller's context variables.

    A thread cannot be cancelled: if the caller is, the function goes on. `ended` is called once, on the event loop,
    when it has ended. Daemon threads do not keep the process from exiting.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Outcome] = loop.create_future()
    context = copy_context()

    def finish(outcome: _Outcome) -> None:
        ended()
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        try:
            outcome = _Outcome(value=context.run(function))
        except BaseException as error:  # noqa: BLE001  raised again by `unwrap`
            outcome = _Outcome(error=error)
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(finish, outcome)

    try:
        threading.Thread(target=run, name=f"toolplug-{name}", daemon=True).start()
    except RuntimeError:
        ended()
        raise
    return (await done).unwrap()


class Progress:
    """Sends the newest report as soon as the last one has arrived; reports in between are dropped.

    `report` may be called from any thread and never blocks.
    """

    def __init__(self, send: Callable[[Answer], Awaitable[object]]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._newest: Answer | None = None
        self._changed = asyncio.Event()

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Implement `CallContext.report`; values that are not JSON are dropped."""
        given = {"progress": progress, "total": total, "message": message and message[:MAX_MESSAGE]}
        fields = {key: value for key, value in given.items() if value is not None}
        if as_json(fields) is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing listens any more
                self._loop.call_soon_threadsafe(self._note, fields)

    async def run(self) -> None:
        """Send reports until cancelled. A report that does not arrive is not an error of the call."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._newest is not None:
                with suppress(HostError):
                    await self._send(self._newest)

    def _note(self, fields: Answer) -> None:
        self._newest = fields
        self._changed.set()
