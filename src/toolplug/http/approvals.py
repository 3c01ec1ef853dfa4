"""What people see of the calls that wait for them, and how they decide."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from toolplug.catalog.exact_json import Answer
from toolplug.execution.approvals import Decision, Ticket, TicketState
from toolplug.http.auth.authentication import insufficient_scope, viewer_of
from toolplug.http.errors import invalid_request
from toolplug.http.request_body import OrjsonResponse, read_json
from toolplug.http.requests import HostRequest, query_fields
from toolplug.http.routing import ADMIN, APPROVALS, Parameter, answers, route


class DecisionBody(BaseModel, extra="forbid", strict=True, frozen=True):
    """What a person decides."""

    decision: Decision


class ApprovalAnswer(Answer):
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
    tenant: Annotated[str, Field(description="of the caller")]


class ApprovalList(TypedDict):
    """The approvals, the one that expires first first."""

    approvals: list[ApprovalAnswer]


def _shown(ticket: Ticket) -> ApprovalAnswer:
    return {
        "id": ticket.id,
        "tool": ticket.tool,
        "digest": ticket.digest,
        "arguments": cast("dict[str, object]", ticket.arguments),
        "subject": ticket.subject,
        "agent": ticket.agent,
        "session": ticket.session,
        "state": ticket.state,
        "expires_at": ticket.expires_at,
        "decided_by": ticket.decided_by,
        "tenant": ticket.tenant,
    }


_ALL = "/v1/approvals"
_ONE = "/v1/approvals/{id}"
_NO_STORE = {"cache-control": "no-store"}


_EVERY = Parameter("tenants", "all: those of every tenant, for the scope `admin`", choices=("all",))
_OF = Parameter("tenant", "of the call, where it is not the caller's own; for the scope `admin`")


@route("GET", _ALL, APPROVALS, "Calls that wait for a person", parameters=(_EVERY,))
@answers(ApprovalList, errors=(400,))
async def list_approvals(request: HostRequest) -> OrjsonResponse[ApprovalList]:
    """Answer the tickets of the caller's tenant, or of all, that can still be decided or used."""
    state = request.state
    approvals, everywhere = state["host"].approvals, query_fields(request).get("tenants")
    if everywhere is None:
        tickets = await approvals.waiting(state["principal"].tenant)
    elif everywhere == "all":
        if not state["principal"].has_scope(ADMIN):
            raise insufficient_scope(ADMIN)
        tickets = await approvals.everywhere()
    else:
        raise invalid_request(f"tenants must be all, not {everywhere!r}", "tenants")
    return OrjsonResponse({"approvals": [_shown(ticket) for ticket in tickets]}, 200, _NO_STORE)


@route("POST", _ONE, APPROVALS, "Approve or deny a call", DecisionBody, parameters=(_OF,))
@answers(ApprovalAnswer, errors=(404, 409))
async def decide_approval(request: HostRequest) -> OrjsonResponse[ApprovalAnswer]:
    """Approve or deny one call. Raises `HttpProblem` and `ApiError`."""
    state = request.state
    body = await read_json(request, DecisionBody)
    ticket = await state["host"].approvals.decide(
        request.path_params["id"], body.decision, viewer_of(request), request_id=state["request_id"]
    )
    return OrjsonResponse(_shown(ticket), 200, _NO_STORE)
