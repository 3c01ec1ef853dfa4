"""`GET /api/catalog`: every tool, for people who choose (docs/reference/discovery.md)."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from starlette.responses import Response

from toolplug.catalog.call import CODE_PATTERN
from toolplug.catalog.definition import Offer
from toolplug.catalog.exact_json import Answer
from toolplug.execution.plans import PolicyWord
from toolplug.host.explain_gates import VerdictWord
from toolplug.host.file.tool_servers import Status
from toolplug.http.auth.authentication import viewer_of
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.requests import HostRequest, has_version, query_fields, requested_session
from toolplug.http.routing import NOT_MODIFIED, READ, TENANT, Parameter, answers, route


class ToolInfo(Answer):
    """One tool of the catalog for people."""

    name: Annotated[str, Field(description="what a call names; server/tool where no toolset exposes it")]
    description: str
    type: Literal["native", "mcp", "session", "remote"]
    server: NotRequired[str]
    toolset: NotRequired[str]
    callable: bool
    verdict: Annotated[VerdictWord, Field(description="on a call of the caller, as GET /v1/explain has it")]
    reason: NotRequired[Annotated[str, Field(description="why it asks or refuses, and who may call the tool")]]
    configuredPolicy: PolicyWord
    offer: NotRequired[Annotated[Offer, Field(description="to models, where it is not always")]]
    discoveryStatus: Annotated[Status | None, Field(description="of its server")]
    lastDiscovered: str | None
    stale: Annotated[bool, Field(description="the server has not said so lately")]


class CatalogAnswer(Answer):
    """Every tool that there is for the caller."""

    tools: list[ToolInfo]


_AGENT = Parameter("agent", "only what this agent can reach")
_SESSION = Parameter("session", "also the tools of this session, live where they are", pattern=CODE_PATTERN)


@route(
    "GET",
    "/api/catalog",
    READ,
    "Every tool that there is, for people who choose",
    parameters=(_AGENT, _SESSION, TENANT),
)
@answers(CatalogAnswer, others=NOT_MODIFIED, errors=(400, 404, 410))
async def show_catalog(request: HostRequest) -> Response:
    """Answer the catalog, or 304 to a client that has it. Raises `AccessError`."""
    state = request.state
    agent, viewer = query_fields(request).get("agent") or None, viewer_of(request)
    session = await requested_session(request, viewer.tenant)
    page = state["host"].catalog_page(viewer, agent=agent, session=session)
    etag = f'"{page.etag}"'
    headers = {"etag": etag, "cache-control": "private, no-cache", "vary": "authorization, x-api-key"}
    if has_version(request, etag):
        return Response(status_code=304, headers=headers)
    return OrjsonResponse(page.body, 200, headers)
