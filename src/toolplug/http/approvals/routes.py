"""What people see of the calls that wait for them, and how they decide."""

from __future__ import annotations

import orjson

from toolplug.errors import ApprovalRefused
from toolplug.host.host import Host
from toolplug.http.approvals.models import ApprovalAnswer, ApprovalList, DecisionBody
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.own_route import OwnRoute
from toolplug.http.problem import HttpProblem
from toolplug.http.scopes import APPROVALS

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
