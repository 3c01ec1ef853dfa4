"""Approvals over HTTP: the calls that wait for people, how they decide, and the grants that they take back."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import Response
from typing_extensions import TypedDict

from toolplug.catalog.call import OPERATOR
from toolplug.catalog.exact_json import Answer
from toolplug.catalog.validation.json_size import MAX_NAMES
from toolplug.config.units import Duration
from toolplug.host.host import Host
from toolplug.host.keys import HEADER
from toolplug.http.auth.authentication import ANYBODY, insufficient_scope, viewer_of
from toolplug.http.bodies.request_body import OrjsonResponse, read_json
from toolplug.http.errors import invalid_request
from toolplug.http.requests import HostRequest, query_fields
from toolplug.http.routing import APPROVALS, SEEING_APPROVALS, Parameter, answers, route
from toolplug.part_protocols.approvals import MAX_REASON, Decision, DecisionTerms, GrantTerms, Ticket, TicketState
from toolplug.parts.approvals.grants import Grants
from toolplug.parts.approvals.held import Grant
from toolplug.parts.approvals.limits import MAX_CALLS
from toolplug.parts.approvals.running import RunningApprovals


def _check_true(value: object) -> object:
    # `Literal[True]` takes 1 too, and allows every call.
    if value is not True:
        raise ValueError("only true is every call")
    return value


class GrantBody(BaseModel, extra="forbid", strict=True, frozen=True, populate_by_name=True):
    """What a person allows beside this call."""

    arguments: Annotated[
        Annotated[dict[str, object], Field(max_length=MAX_NAMES)]
        | Annotated[Literal[True], BeforeValidator(_check_true)]
        | None,
        Field(description="a JSON Schema: what it does not name is refused; true: every call; absent: equal ones"),
    ] = None
    scope: Literal["session", "caller"] = "session"
    # Named after a word of Python: `for` in the body.
    life: Annotated[Duration, Field(alias="for", description="for how long, such as 8h")]
    calls: Annotated[
        int | None, Field(ge=1, le=MAX_CALLS, description="how many calls after this one; absent: any number")
    ] = None

    @property
    def terms(self) -> GrantTerms:
        """The grant as the approvals take it."""
        return GrantTerms(self.life, self.scope, self.arguments, self.calls)


class DecisionBody(BaseModel, extra="forbid", strict=True, frozen=True):
    """What a person decides."""

    decision: Decision
    grant: GrantBody | None = None
    arguments: Annotated[
        dict[str, object] | None,
        Field(max_length=MAX_NAMES, description="they run in place of the caller's"),
    ] = None
    reason: Annotated[str | None, Field(max_length=MAX_REASON, description="shown to the caller of a denied call")] = (
        None
    )


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
    asked_at: Annotated[str | None, Field(description="null for a call that an older version has asked about")]
    expires_at: str
    decided_by: str | None
    decided_at: str | None
    tenant: Annotated[str, Field(description="of the caller")]
    reason: Annotated[str | None, Field(description="what the person said who has decided")]
    asked_because: Annotated[str | None, Field(description="what a plugin said that wanted the approval")]
    asked_arguments: Annotated[
        dict[str, object] | None, Field(description="those of the caller, where a person has changed the arguments")
    ]
    grant: Annotated[str | None, Field(description="the id of the grant that was made with the decision")]


class ApprovalList(TypedDict):
    """The approvals, the one that expires first first."""

    approvals: list[ApprovalAnswer]


def _show(ticket: Ticket) -> ApprovalAnswer:
    return cast("ApprovalAnswer", ticket._asdict())


_ALL = "/v1/approvals"
_ONE = "/v1/approvals/{id}"
# Arguments of calls are in the answers, which no cache may keep.
NO_STORE = {"cache-control": "no-store"}

_DECISION_KEY = HEADER.lower().encode()
_BY_KEY = Parameter(HEADER, "the host's decision key; needed where the host has no auth", place="header")
_OWN_CALL = (
    "without auth every request is that of the caller, who does not decide its own call. Decide in the console, by the"
    " link that toolplug serve prints, with `toolplug approvals`, or send the host's decision key as {header}: it is in"
    " {place}"
)


def _own_call(host: Host) -> str:
    """Return why a decision without the decision key is refused, and the ways that there are."""
    file = host.decision_key.file
    place = "that link only, as the store has no file" if file is None else f"{file.parent.name}/{file.name}"
    return _OWN_CALL.format(header=HEADER, place=place)


_EVERY = Parameter("tenants", "all: those of every tenant, for the scope `operator`", choices=("all",))


def _asked_tenant(request: HostRequest) -> str | None:
    """Return the tenant that the query asks about, None for all of them. Raises `HttpProblem` without the scope."""
    everywhere = query_fields(request).get("tenants")
    if everywhere is None:
        return viewer_of(request).tenant
    if everywhere != "all":
        raise invalid_request(f"tenants must be all, not {everywhere!r}", "tenants")
    if not request.state["principal"].has_scope(OPERATOR):
        raise insufficient_scope(OPERATOR)
    return None


_OF = Parameter("tenant", "of the call, where it is not the caller's own; for the scope `operator`")


@route("GET", _ALL, SEEING_APPROVALS, "Calls that wait for a person", parameters=(_OF, _EVERY))
@answers(ApprovalList, errors=(400,))
async def list_approvals(request: HostRequest) -> OrjsonResponse[ApprovalList]:
    """Answer the tickets of the caller's tenant, or of all, that can still be decided or used."""
    approvals, tenant = request.state["host"].approvals, _asked_tenant(request)
    tickets = await approvals.everywhere() if tenant is None else await approvals.waiting(tenant)
    return OrjsonResponse({"approvals": [_show(ticket) for ticket in tickets]}, 200, NO_STORE)


@route("POST", _ONE, APPROVALS, "Approve or deny a call", DecisionBody, parameters=(_OF, _BY_KEY))
@answers(ApprovalAnswer, errors=(404, 409, 422))
async def decide_approval(request: HostRequest) -> OrjsonResponse[ApprovalAnswer]:
    """Approve or deny a call of another credential; without `auth`, by the decision key.

    Raises `HttpProblem` and `ApiError`.
    """
    state = request.state
    body, host = await read_json(request, DecisionBody), state["host"]
    # Without `auth` every request has the same principal, so that only the key tells the person from the model's
    # client.
    by_caller = state["principal"] is ANYBODY and not host.decision_key.matches(state["headers"].get(_DECISION_KEY))
    ticket = await host.approvals.decide(
        request.path_params["id"],
        body.decision,
        viewer_of(request),
        request_id=state["request_id"],
        own=_own_call(host) if by_caller else "",
        terms=DecisionTerms(body.reason, body.arguments, None if body.grant is None else body.grant.terms),
    )
    return OrjsonResponse(_show(ticket), 200, NO_STORE)


class GrantAnswer(Answer):
    """One grant: calls of this caller and tool that a person has allowed."""

    id: str
    tool: str
    digest: Annotated[str, Field(description="of the tool's definition; with another one the grant is void")]
    caller: str
    agent: str | None
    session: Annotated[bool, Field(description="does it hold in one session only")]
    scope: Literal["session", "caller"]
    arguments: Annotated[object, Field(description="the schema as it was given, true, or the exact arguments")]
    made_by: str
    made_at: str
    expires_at: str
    calls_left: Annotated[int | None, Field(description="null: any number")]
    used: Annotated[int, Field(description="calls; lags by some seconds where calls_left is null")]
    tenant: Annotated[str, Field(description="of the caller")]


class GrantList(TypedDict):
    """The grants, the newest first."""

    grants: list[GrantAnswer]


_OF_GRANTS = Parameter("tenant", "whose grants they are, where it is not the caller's own; for the scope `operator`")
_TOOL = Parameter("tool", "those for the tool of this name")
_CALLER = Parameter("caller", "those of this caller")
_OF_LIST = (_TOOL, _CALLER, _OF_GRANTS, _EVERY)


def _grants(request: HostRequest) -> Grants:
    part = request.state["host"].part(RunningApprovals)
    assert part is not None, "this part is always open"
    return part.own.grants


@route("GET", "/v1/grants", SEEING_APPROVALS, "What people have allowed", parameters=_OF_LIST)
@answers(GrantList, errors=(400,))
async def list_grants(request: HostRequest) -> OrjsonResponse[GrantList]:
    """Answer the grants of the caller's tenant, or of all, that have not expired."""
    fields = query_fields(request)
    tool, caller = fields.get("tool"), fields.get("caller")

    def is_wanted(grant: Grant) -> bool:
        return tool in (None, grant.tool) and caller in (None, grant.caller)

    found = await _grants(request).list_grants(_asked_tenant(request), is_wanted)
    return OrjsonResponse({"grants": [cast("GrantAnswer", grant._asdict()) for grant in found]}, 200, NO_STORE)


@route("DELETE", "/v1/grants/{id}", APPROVALS, "Revoke a grant", parameters=(_OF_GRANTS,))
@answers(status=204, errors=(404,))
async def revoke_grant(request: HostRequest) -> Response:
    """Revoke a grant: calls that it allowed are asked about again, within a second in every process."""
    by, request_id = viewer_of(request), request.state["request_id"]
    await _grants(request).revoke(request.path_params["id"], by, request_id=request_id)
    return Response(status_code=204)


ROUTES = (list_approvals, decide_approval, list_grants, revoke_grant)
