"""What people see of the calls that wait for them, and how they decide."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field
from starlette.responses import Response

from toolplug.execution.approvals import Decision, TicketState
from toolplug.http.request_body import OrjsonResponse, read_json
from toolplug.http.requests import HostRequest
from toolplug.http.routing import APPROVALS, answers, route


class DecisionBody(BaseModel, extra="forbid", strict=True, frozen=True):
    """What a person decides."""

    decision: Decision


class ApprovalAnswer(BaseModel, extra="forbid"):
    """One call that waits for a person, or was decided."""

    id: str
    tool: str
    digest: Annotated[str, Field(description="of the tool's definition, as it was when the call was made")]
    arguments: dict[str, object]
    subject: Annotated[str, Field(description="who calls")]
    agent: str | None
    session: Annotated[bool, Field(description="was it made in a session")]
    state: TicketState
    expires_at: str
    decided_by: str | None


class ApprovalList(BaseModel):
    """The tenant's approvals, the one that expires first first."""

    approvals: list[ApprovalAnswer]


_ALL = "/v1/approvals"
_ONE = "/v1/approvals/{id}"
_NO_STORE = {"cache-control": "no-store"}


@route("GET", _ALL, APPROVALS, "Calls that wait for a person")
@answers(ApprovalList)
async def list_approvals(request: HostRequest) -> Response:
    """Answer the tickets of the caller's tenant that can still be decided or used."""
    state = request.state
    tickets = await state["host"].approvals.waiting(state["principal"].tenant)
    shown = {"approvals": [ticket._asdict() for ticket in tickets]}
    return OrjsonResponse(shown, 200, _NO_STORE)


@route("POST", _ONE, APPROVALS, "Approve or deny a call", DecisionBody)
@answers(ApprovalAnswer, errors=(404, 409))
async def decide_approval(request: HostRequest) -> Response:
    """Approve or deny one call. Raises `HttpProblem` and `ApiError`."""
    state = request.state
    body = await read_json(request, DecisionBody)
    ticket = await state["host"].approvals.decide(
        request.path_params["id"], body.decision, state["principal"], request_id=state["request_id"]
    )
    return OrjsonResponse(ticket._asdict(), 200, _NO_STORE)
