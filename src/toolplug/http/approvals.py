"""What people see of the calls that wait for them, and how they decide."""

from __future__ import annotations

from typing import Annotated, ClassVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from toolplug.errors import ApprovalRefused
from toolplug.execution.approvals import Decision, TicketState
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import HttpProblem
from toolplug.http.routing import APPROVALS, OwnRoute


class DecisionBody(BaseModel):
    """What a person decides."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)

    decision: Decision


class ApprovalAnswer(BaseModel):
    """One call that waits for a person, or was decided."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

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
_NO_STORE = ((b"cache-control", b"no-store"),)
_STATUS = {"approval_not_found": 404, "approval_decided": 409}


async def list_approvals(host: Host, exchange: Exchange) -> None:
    """Answer the tickets of the caller's tenant that can still be decided or used."""
    tickets = await host.approvals.waiting(exchange.principal.tenant)
    shown = {"approvals": [ticket._asdict() for ticket in tickets]}
    await exchange.answer(200, orjson.dumps(shown), headers=_NO_STORE)


async def decide_approval(host: Host, exchange: Exchange) -> None:
    """Approve or deny one call. Raises `HttpProblem`."""
    body = await read_json(exchange, DecisionBody)
    try:
        ticket = await host.approvals.decide(
            exchange.params["id"], body.decision, exchange.principal, request_id=exchange.request_id
        )
    except ApprovalRefused as error:
        raise HttpProblem(_STATUS[error.code], error.code, str(error), param="id") from None
    await exchange.answer(200, orjson.dumps(ticket._asdict()), headers=_NO_STORE)


APPROVAL_ROUTES = (
    OwnRoute("GET", _ALL, APPROVALS, list_approvals, "Calls that wait for a person", ApprovalList),
    OwnRoute(
        "POST",
        _ONE,
        APPROVALS,
        decide_approval,
        "Approve or deny a call",
        ApprovalAnswer,
        DecisionBody,
        errors=(400, 404, 409, 413, 415),
    ),
)
