"""The extension `io.modelcontextprotocol/tasks`: for our clients, and for the servers that we call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import cast

import mcp_types as types

from toolplug import CallContext, McpExtension, ToolCall, ToolExecutor
from toolplug.catalog import as_object
from toolplug.errors import StoreError
from toolplug.http import HttpProblem
from toolplug.mcp_extensions import (
    AcceptedCall,
    Ask,
    ExtendedCall,
    ExtensionMethod,
    ExtensionRefused,
    ExtensionRequest,
    ExtensionServer,
    Fields,
    result_fields,
)
from toolplug.runtime import BackgroundTasks
from toolplug_tasks.records import MAX_TASKS, TaskOwner
from toolplug_tasks.running import RunningTasks
from toolplug_tasks.work import MAX_MESSAGE

NAME = "io.modelcontextprotocol/tasks"
PATH = "/v1/tasks"
FIRST_PAUSE_S = 0.05
"""Before the first question to a server about its task; each is twice the last, up to what the server asks for."""
LONGEST_PAUSE_S = 5.0
CANCEL_S = 5.0
"""Seconds in which a server may take note that its task is cancelled, after our call has ended."""
_GET, _UPDATE, _CANCEL = "tasks/get", "tasks/update", "tasks/cancel"
_NO_TASK = "no such task, or it is kept no longer"
_NOTHING: Fields = {}


class TasksExtension(McpExtension):
    """Tasks: of clients that have declared them, and of servers that answer a call by one."""

    name = NAME
    name_params: Mapping[str, str] = dict.fromkeys((_GET, _UPDATE, _CANCEL), "taskId")
    result_types = frozenset({"task"})

    def __init__(self, tasks: RunningTasks) -> None:
        self._tasks = tasks
        self._cancelling = BackgroundTasks()
        self.methods: Mapping[str, ExtensionMethod] = {
            _GET: _answer_failures(self._get),
            _UPDATE: _answer_failures(self._update),
            _CANCEL: _answer_failures(self._cancel),
        }

    async def aclose(self) -> None:
        """Wait for no server any longer."""
        await self._cancelling.cancel()

    async def call_tool(self, call: ExtendedCall) -> Fields:
        """Answer a task for a call that is not done in time, where the client has declared tasks."""
        return await (call.run(call.context) if call.declared is None else self._tasks.answer(call))

    async def accept_call(self, executor: ToolExecutor, call: ToolCall, context: CallContext) -> AcceptedCall:
        """Begin a call of the HTTP API as a task. Raises `HttpProblem` and `StoreError`."""
        task = await self._tasks.accept(_HttpCall(executor, call, context))
        if task is None:
            said = f"this caller has {MAX_TASKS} tasks, running or kept; DELETE {PATH}/ID forgets one"
            raise HttpProblem(429, "quota_exceeded", said, param="tasks", headers={"retry-after": "60"})
        return AcceptedCall(task, f"{PATH}/{task['taskId']}")

    async def _get(self, request: ExtensionRequest) -> Fields:
        task = await self._tasks.current(_owner_of(request), request.params.get("taskId"))
        if task is None:
            raise ExtensionRefused(types.INVALID_PARAMS, _NO_TASK)
        return task

    async def _update(self, request: ExtensionRequest) -> Fields:
        task_id, responses = request.params.get("taskId"), request.params.get("inputResponses")
        if not isinstance(responses, dict):
            raise ExtensionRefused(types.INVALID_PARAMS, "inputResponses: it should be an object of answers by name")
        if not await self._tasks.update(_owner_of(request), task_id, cast("object", responses)):
            raise ExtensionRefused(types.INVALID_PARAMS, _NO_TASK)
        return _NOTHING

    async def _cancel(self, request: ExtensionRequest) -> Fields:
        if not await self._tasks.cancel(_owner_of(request), request.params.get("taskId")):
            raise ExtensionRefused(types.INVALID_PARAMS, _NO_TASK)
        return _NOTHING

    async def finish(self, result: Fields, server: ExtensionServer) -> Fields:
        """Drive a server's task to its end, and return its result; a call that ends before cancels it."""
        task_id = result.get("taskId")
        if not isinstance(task_id, str):
            raise ExtensionRefused(types.INTERNAL_ERROR, "it has answered with a task that has no id")
        try:
            return await _drive(task_id, result, server)
        # The deadline of the call too, which cancels it: the server would work on for nobody.
        except BaseException:
            self._cancelling.start(_cancel_there(task_id, server), "toolplug-task-cancel")
            raise


def _owner_of(request: ExtensionRequest) -> TaskOwner:
    return TaskOwner(request.principal, request.scope)


async def _drive(task_id: str, task: Fields, server: ExtensionServer) -> Fields:
    pause_s, heard, looks = FIRST_PAUSE_S, "", 0
    while True:
        status = task.get("status")
        if status == "completed":
            return as_object(task.get("result"))
        if status in ("failed", "cancelled"):
            error = as_object(task.get("error"))
            code, said = error.get("code"), error.get("message") or task.get("statusMessage") or f"its task {status}"
            raise ExtensionRefused(code if isinstance(code, int) else types.INTERNAL_ERROR, str(said)[:MAX_MESSAGE])
        message, looks = task.get("statusMessage"), looks + 1
        if isinstance(message, str) and message != heard:
            heard = message
            server.report(looks, None, message[:MAX_MESSAGE])
        if status == "input_required":
            answers = await server.ask(as_object(task.get("inputRequests")))
            await server.request(_UPDATE, {"taskId": task_id, "inputResponses": answers}, task_id)
            pause_s = FIRST_PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, _longest_pause(task))
        task = await server.request(_GET, {"taskId": task_id}, task_id)


def _longest_pause(task: Fields) -> float:
    wanted = task.get("pollIntervalMs")
    seconds = wanted / 1000 if isinstance(wanted, int | float) else LONGEST_PAUSE_S
    return min(max(seconds, FIRST_PAUSE_S), LONGEST_PAUSE_S)


async def _cancel_there(task_id: str, server: ExtensionServer) -> None:
    try:
        async with asyncio.timeout(CANCEL_S):
            await server.request(_CANCEL, {"taskId": task_id}, task_id)
    except Exception:  # noqa: BLE001  the call has its answer; a task that has ended, or a server that is gone
        return


def _answer_failures(method: Callable[[ExtensionRequest], Awaitable[Fields]]) -> ExtensionMethod:
    """Return the method with a failure of the store as an error of the protocol."""

    async def answer(request: ExtensionRequest) -> Fields:
        try:
            return await method(request)
        except StoreError:
            said = "the store of the host cannot answer; ask again in a moment"
            raise ExtensionRefused(types.INTERNAL_ERROR, said) from None

    return answer


class _HttpCall:
    """A call of `POST /v1/tool-calls`, whose result is kept in the protocol's form. Implements `ExtendedCall`."""

    declared: Fields | None = _NOTHING

    def __init__(self, executor: ToolExecutor, call: ToolCall, context: CallContext) -> None:
        self._executor = executor
        self.call: ToolCall = call
        self.context: CallContext = context
        tool = executor.catalog.find(call.name)
        self.timeout_s: float = inf if tool is None else tool.plan.timeout_s

    async def run(
        self, context: CallContext, *, during: Ask | None = None, responses: Fields = _NOTHING, state: str | None = None
    ) -> Fields:
        """Run it. Its caller has nobody who can be asked."""
        result = await self._executor.execute(self.call, context)
        # After the call, which may have opened the toolset of the tool.
        tool = self._executor.catalog.find(self.call.name)
        return result_fields(result, None if tool is None else tool.definition)
