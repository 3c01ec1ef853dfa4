"""The routes of toolsets and agents."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from toolplug.catalog.call import ADMIN
from toolplug.catalog.definition import Offer
from toolplug.errors import InvalidDefinition
from toolplug.host.file.settings import Scope
from toolplug.host.toolsets.records import Binding
from toolplug.http.bodies.request_body import OrjsonResponse, read_json
from toolplug.http.errors import HttpProblem
from toolplug.http.requests import HostRequest, acting
from toolplug.http.routing import answers, route
from toolplug.http.tools import MAX_TOOLSETS
from toolplug.toolsets.registered import Allowlist


class AllowlistBody(BaseModel, extra="forbid", strict=True, frozen=True):
    """The toolsets of an agent, in place of those that it had."""

    toolsets: Annotated[
        list[str], Field(max_length=MAX_TOOLSETS, description="ids, in the order in which a model sees them")
    ]


class AllowlistAnswer(TypedDict):
    """The toolsets that an agent may use, and the line or the request that says so."""

    agent: str
    toolsets: list[str]
    origin: str


class BindingBody(BaseModel, extra="forbid", strict=True, frozen=True):
    """A toolset: the tools of a provider or of an MCP server under a prefix."""

    prefix: Annotated[str, Field(description="the tools are called prefix.tool; used once")]
    source: Annotated[str, Field(alias="from", description="provider:KEY or mcp:ID")]
    scope: Annotated[Scope, Field(description="session: a connection for each session, for mcp:")] = "shared"
    offer: Annotated[
        Offer | None, Field(description="to models, of the tools whose own rules say nothing; null: as their source")
    ] = None


BindingAnswer = TypedDict(
    "BindingAnswer", {"id": str, "prefix": str, "from": str, "scope": Scope, "offer": NotRequired[Offer]}
)
BindingAnswer.__doc__ = "A toolset as it is bound now."

_ALLOWLIST = "/api/agents/{id}/toolsets"
_BINDING = "/api/toolset-bindings/{id}"


def _allowlist_response(agent: str, allowed: Allowlist) -> OrjsonResponse[AllowlistAnswer]:
    return OrjsonResponse({"agent": agent, "toolsets": [*allowed.toolsets], "origin": allowed.origin})


@route("GET", _ALLOWLIST, ADMIN, "The toolsets that an agent may use")
@answers(AllowlistAnswer)
async def show_allowlist(request: HostRequest) -> OrjsonResponse[AllowlistAnswer]:
    """Answer the toolsets of an agent of the caller's tenant: none for one that nobody configured."""
    state = request.state
    agent = request.path_params["id"]
    return _allowlist_response(agent, state["host"].toolsets.allowlist(state["principal"].tenant, agent))


@route("PUT", _ALLOWLIST, ADMIN, "Replace the toolsets that an agent may use", AllowlistBody)
@answers(AllowlistAnswer, errors=(422,))
async def put_allowlist(request: HostRequest) -> OrjsonResponse[AllowlistAnswer]:
    """Replace the toolsets of an agent for the caller's tenant. Raises `HttpProblem` and `ApiError`."""
    agent = request.path_params["id"]
    body = await read_json(request, AllowlistBody)
    allowed = await request.state["host"].toolsets.allow(agent, tuple(body.toolsets), **acting(request))
    return _allowlist_response(agent, allowed)


@route("PUT", _BINDING, ADMIN, "Bind a toolset to a provider", BindingBody)
@answers(BindingAnswer, errors=(409, 422))
async def put_binding(request: HostRequest) -> OrjsonResponse[BindingAnswer]:
    """Bind a toolset for the caller's tenant. Raises `HttpProblem` and `ApiError`; then nothing has changed."""
    body = await read_json(request, BindingBody)
    binding = Binding(body.prefix, body.source, body.scope, body.offer)
    try:
        bound = await request.state["host"].toolsets.bind(request.path_params["id"], binding, **acting(request))
    except InvalidDefinition as error:
        raise HttpProblem(422, "invalid_toolset", str(error), param=error.at) from None
    answer: BindingAnswer = {"id": bound.id, "prefix": bound.prefix, "from": bound.shown, "scope": binding.scope}
    return OrjsonResponse(answer if binding.offer is None else {**answer, "offer": binding.offer})
