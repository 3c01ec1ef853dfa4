"""Grants over HTTP: what people have allowed for several calls, and how they take it back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from toolplug.catalog.exact_json import Answer
from toolplug.http.auth.authentication import viewer_of
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.requests import HostRequest, query_fields
from toolplug.http.routing import APPROVALS, SEEING_APPROVALS, Parameter, answers, route
from toolplug.parts.approvals.grants import Grants
from toolplug.parts.approvals.held import Grant
from toolplug.parts.approvals.http import NO_STORE
from toolplug.parts.approvals.running import RunningApprovals


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


_OF = Parameter("tenant", "whose grants they are, where it is not the caller's own; for the scope `operator`")
_TOOL = Parameter("tool", "those for the tool of this name")
_CALLER = Parameter("caller", "those of this caller")


def _show(grant: Grant) -> GrantAnswer:
    return {
        "id": grant.id,
        "tool": grant.tool,
        "digest": grant.digest,
        "caller": grant.caller,
        "agent": grant.agent,
        "session": grant.session,
        "scope": grant.scope,
        "arguments": grant.arguments,
        "made_by": grant.made_by,
        "made_at": grant.made_at,
        "expires_at": grant.expires_at,
        "calls_left": grant.calls_left,
        "used": grant.used,
        "tenant": grant.tenant,
    }


def _grants(request: HostRequest) -> Grants:
    part = request.state["host"].part(RunningApprovals)
    assert part is not None, "this part is always open"
    return part.own.grants


@route("GET", "/v1/grants", SEEING_APPROVALS, "What people have allowed", parameters=(_TOOL, _CALLER, _OF))
@answers(GrantList)
async def list_grants(request: HostRequest) -> OrjsonResponse[GrantList]:
    """Answer the grants of the caller's tenant that have not expired."""
    fields = query_fields(request)
    tool, caller = fields.get("tool"), fields.get("caller")

    def is_wanted(grant: Grant) -> bool:
        return tool in (None, grant.tool) and caller in (None, grant.caller)

    found = await _grants(request).list_grants(viewer_of(request).tenant, is_wanted)
    return OrjsonResponse({"grants": [_show(grant) for grant in found]}, 200, NO_STORE)


@route("DELETE", "/v1/grants/{id}", APPROVALS, "Revoke a grant", parameters=(_OF,))
@answers(status=204, errors=(404,))
async def revoke_grant(request: HostRequest) -> Response:
    """Revoke a grant: calls that it allowed are asked about again, within a second in every process."""
    by, request_id = viewer_of(request), request.state["request_id"]
    await _grants(request).revoke(request.path_params["id"], by, request_id=request_id)
    return Response(status_code=204)


ROUTES = (list_grants, revoke_grant)
