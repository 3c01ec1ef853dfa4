"""One request carried out: a tool's function is called, and whatever it does becomes one answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import cast

from toolplug.catalog.call import CallContext
from toolplug.client.in_task import in_task
from toolplug.client.in_thread import in_thread
from toolplug.client.tool import Tool
from toolplug.errors import InvalidArguments, ToolError
from toolplug.signatures.values import as_json

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
