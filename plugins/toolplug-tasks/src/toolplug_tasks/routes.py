"""`/v1/tasks/{id}`: a task over HTTP, as `tasks/get` answers it."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from toolplug.http import HostRequest, HttpProblem, answers, credential_scope, part_of, route
from toolplug_tasks.part import TasksPart
from toolplug_tasks.records import TaskOwner

SCOPE = "tools:call"


class TaskRecord(TypedDict):
    """A call that goes on after its request, as `io.modelcontextprotocol/tasks` has it."""

    taskId: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    createdAt: str
    lastUpdatedAt: str
    ttlMs: Annotated[int, Field(description="from its creation until it is forgotten")]
    pollIntervalMs: int
    statusMessage: NotRequired[str]
    result: NotRequired[Annotated[dict[str, object], Field(description="that of MCP's tools/call, once completed")]]
    error: NotRequired[Annotated[dict[str, object], Field(description="code and message, once failed")]]
    inputRequests: NotRequired[Annotated[dict[str, object], Field(description="answered by tasks/update of MCP")]]


@route("GET", "/v1/tasks/{id}", SCOPE, "A task of the caller")
@answers(TaskRecord, errors=(404, 503))
async def read_task(request: HostRequest) -> Response:
    """Answer the task. Raises `HttpProblem` and `StoreError`."""
    tasks = part_of(request, TasksPart).tasks
    task = await tasks.current(await _owner_of(request), request.path_params["id"])
    if task is None:
        raise _not_found()
    return JSONResponse(task, headers={"cache-control": "no-store"})


@route("DELETE", "/v1/tasks/{id}", SCOPE, "End and forget a task of the caller")
@answers(status=204, errors=(404, 503))
async def delete_task(request: HostRequest) -> Response:
    """End the task if it runs, and forget it. Raises `HttpProblem` and `StoreError`."""
    tasks = part_of(request, TasksPart).tasks
    if not await tasks.delete(await _owner_of(request), request.path_params["id"]):
        raise _not_found()
    return Response(status_code=204)


async def _owner_of(request: HostRequest) -> TaskOwner:
    return TaskOwner(request.state["principal"], await credential_scope(request))


def _not_found() -> HttpProblem:
    return HttpProblem(404, "task_not_found", "no such task of this caller, or it is kept no longer", param="id")


ROUTES = (read_task, delete_task)
