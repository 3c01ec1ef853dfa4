"""Python functions as tools that an application lends, the capabilities that it declares, and the answers to requests.

A request runs the tool's function in a task or thread, and sends one answer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import ClassVar, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

from toolplug.catalog.call import CallContext
from toolplug.catalog.definition import ToolDefinition, ToolHints
from toolplug.catalog.render import tool_annotations
from toolplug.errors import HostError, InvalidArguments, InvalidDefinition, ToolError
from toolplug.signatures.annotations import Names, names_around
from toolplug.signatures.signature import read_function
from toolplug.signatures.values import as_json, why_not_json

CapabilityType = Literal["data_analysis", "visualization", "messaging", "storage", "computation"]
CapabilityLevel = Literal["basic", "advanced", "enterprise"]
"""In rising order."""


class _Sent(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    def wire(self) -> dict[str, JsonValue]:
        """Return the tool as it is sent in a registration."""
        return self.model_dump(mode="json", by_alias=True)


class Capability(_Sent):
    """A capability of the application; `resources` are its own JSON values, which the host stores unchanged.

    ```python
    from toolplug.client import Application, Capability

    application = Application(
        "http://127.0.0.1:8080",
        plugin_type="codap",
        capabilities=[Capability(type="data_analysis", level="advanced")],
    )
    ```
    """

    type: CapabilityType
    level: CapabilityLevel = "basic"
    resources: tuple[JsonValue, ...] = ()


class Environment(_Sent):
    """Where the application runs, for the session's metadata.

    ```python
    from toolplug.client import Application, Environment

    application = Application(
        "http://127.0.0.1:8080",
        plugin_type="codap",
        environment=Environment(version="3.1", features=("tables", "graphs")),
    )
    ```
    """

    version: str = ""
    features: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    context_info: dict[str, JsonValue] = {}


Function = Callable[..., object]
Definition = Mapping[str, object]
"""A tool as requests and events write it: `name`, `description`, `inputSchema` and what else it has."""


class Requirement(NamedTuple):
    """A capability that the application must have declared, at this level or higher.

    ```python
    from toolplug.client import Application, Requirement

    application = Application("http://127.0.0.1:8080", plugin_type="codap")

    @application.tool(requires=[Requirement("data_analysis", "advanced")])
    def fit(points: list[float]) -> float:
        "Return the mean of the points."
        return sum(points) / len(points)
    ```
    """

    type: CapabilityType
    level: CapabilityLevel


class Tool:
    """A function or bound method as a tool for a model; immutable.

    Its parameters become the schema and its docstring the descriptions, as for the tools of providers; a parameter
    annotated `CallContext` receives the context. `name`: replaces the function's name. `description`: replaces the
    docstring's text. `read_only`, `idempotent`, `destructive`: hints about its effects. `requires`: capabilities
    without which the host refuses it. `around`: the names that annotations may use besides those of the function's
    module, by default those of the caller. Raises `InvalidDefinition`, naming the function.

    ```python
    from toolplug.client import Tool

    def select(row: int) -> str:
        "Select a row of the table."
        return f"row {row}"

    lent = Tool(select, name="select_row", idempotent=True)
    assert lent.definition["inputSchema"]["required"] == ["row"]
    ```
    """

    __slots__ = ("_parameters", "_signature", "blocking", "definition", "function", "name")

    def __init__(
        self,
        function: Function,
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool | None = None,
        idempotent: bool | None = None,
        destructive: bool | None = None,
        requires: Sequence[CapabilityType | Requirement] = (),
        around: Names | None = None,
    ) -> None:
        if not (inspect.isfunction(function) or inspect.ismethod(function)):
            raise InvalidDefinition(f"{function!r} is no function; lend a function, or a method of an object")
        place = function.__qualname__
        names = names_around(sys._getframe(1)) if around is None else around  # pyright: ignore[reportPrivateUsage]
        signature = read_function(function, place, names)
        try:
            listed = ToolDefinition(
                name=function.__name__ if name is None else name,
                description=signature.summary if description is None else description,
                parameters=signature.parameters,
                output_schema=signature.output,
                hints=ToolHints(read_only, idempotent, destructive),
            )
        except InvalidDefinition as error:
            raise InvalidDefinition(f"{place}: {error}") from None
        self.function: Function = function
        self.name: str = listed.name
        self.definition: Definition = _definition(listed, requires)
        # A decorator with `functools.wraps` may be a plain function that returns the coroutine of the one inside.
        self.blocking: bool = not inspect.iscoroutinefunction(inspect.unwrap(function))
        self._parameters = listed.parameters
        self._signature = signature

    def taken(self, arguments: Mapping[str, object], context: CallContext) -> dict[str, object]:
        """Convert the arguments for the function, by parameter. Raises `InvalidArguments`."""
        refusals = self._parameters.refusals(arguments)
        if refusals:
            raise InvalidArguments(refusals)
        convert, wanted = self._signature.convert, self._signature.context
        given = dict(arguments if convert is None else convert(arguments))
        if wanted is not None:
            given[wanted] = context
        return given

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


def _definition(listed: ToolDefinition, requires: Sequence[CapabilityType | Requirement]) -> Definition:
    definition: dict[str, object] = {
        "name": listed.name,
        "description": listed.description,
        "inputSchema": listed.parameters.value,
    }
    if listed.output_schema is not None and listed.output_schema.value.get("type") == "object":  # MCP's rule for tools
        definition["outputSchema"] = listed.output_schema.value
    if hints := tool_annotations(listed.hints):
        definition["annotations"] = hints
    if requires:
        definition["requires"] = [item if isinstance(item, str) else item._asdict() for item in requires]
    return definition


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
        with suppress(RuntimeError):  # the loop is closed, and with it all that waited
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
            with suppress(RuntimeError):  # the loop is closed, and with it all that listened
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
