"""The routes of toolsets and agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from toolplug.errors import InvalidDefinition, ToolsetRefusal, ToolsetRefused
from toolplug.host.file.settings import Scope
from toolplug.host.host import Host
from toolplug.host.toolsets.records import Binding
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import HttpProblem
from toolplug.http.routing import ADMIN, OwnRoute
from toolplug.http.wire_models import MAX_TOOLSETS
from toolplug.toolsets.registered import Allowlist


class _Body(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)


class AllowlistBody(_Body):
    """The toolsets of an agent, in place of those that it had."""

    toolsets: Annotated[
        list[str], Field(max_length=MAX_TOOLSETS, description="ids, in the order in which a model sees them")
    ]


class AllowlistAnswer(BaseModel):
    """The toolsets that an agent may use, and the line or the request that says so."""

    agent: str
    toolsets: list[str]
    origin: str


class BindingBody(_Body):
    """A toolset: the tools of a provider or of an MCP server under a prefix."""

    prefix: Annotated[str, Field(description="the tools are called prefix.tool; used once")]
    source: Annotated[str, Field(alias="from", description="provider:KEY or mcp:ID")]
    scope: Annotated[Scope, Field(description="session: a connection for each session, for mcp:")] = "shared"


class BindingAnswer(BaseModel):
    """A toolset as it is bound now."""

    id: str
    prefix: str
    source: Annotated[str, Field(alias="from")]
    scope: Scope


_STATUS: Mapping[ToolsetRefusal, int] = {
    "invalid_agent": 400,
    "prefix_taken": 409,
    "provider_is_shared": 422,
    "unknown_provider": 422,
    "unknown_server": 422,
    "unknown_toolset": 422,
}


def refused(error: ToolsetRefused) -> HttpProblem:
    """The problem of a request that would have registered or allowed what cannot be."""
    return HttpProblem(_STATUS[error.code], error.code, str(error), param=error.param)


async def put_binding(host: Host, exchange: Exchange) -> None:
    """Bind a toolset for the caller's tenant. Raises `HttpProblem`; then nothing has changed."""
    body = await read_json(exchange, BindingBody)
    binding = Binding(body.prefix, body.source, body.scope)
    try:
        bound = await host.toolsets.bind(
            exchange.params["id"], binding, by=exchange.principal, request_id=exchange.request_id
        )
    except ToolsetRefused as error:
        raise refused(error) from None
    except InvalidDefinition as error:
        raise HttpProblem(422, "invalid_toolset", str(error), param=error.at) from None
    answer = {"id": bound.id, "prefix": bound.prefix, "from": bound.shown, "scope": binding.scope}
    await exchange.answer(200, orjson.dumps(answer))


async def show_allowlist(host: Host, exchange: Exchange) -> None:
    """Answer the toolsets of an agent of the caller's tenant: none for one that nobody configured."""
    agent = exchange.params["id"]
    await _answer_allowlist(exchange, agent, host.toolsets.allowlist(exchange.principal.tenant, agent))


async def put_allowlist(host: Host, exchange: Exchange) -> None:
    """Replace the toolsets of an agent for the caller's tenant. Raises `HttpProblem`; then nothing has changed."""
    agent = exchange.params["id"]
    body = await read_json(exchange, AllowlistBody)
    try:
        allowed = await host.toolsets.allow(
            agent, tuple(body.toolsets), by=exchange.principal, request_id=exchange.request_id
        )
    except ToolsetRefused as error:
        raise refused(error) from None
    await _answer_allowlist(exchange, agent, allowed)


async def _answer_allowlist(exchange: Exchange, agent: str, allowed: Allowlist) -> None:
    answer = {"agent": agent, "toolsets": allowed.toolsets, "origin": allowed.origin}
    await exchange.answer(200, orjson.dumps(answer))


_ALLOWLIST = "/api/agents/{id}/toolsets"
_BINDING = "/api/toolset-bindings/{id}"
_REFUSALS = (400, 413, 415, 422)

TOOLSET_ROUTES = (
    OwnRoute("GET", _ALLOWLIST, ADMIN, show_allowlist, "The toolsets that an agent may use", AllowlistAnswer),
    OwnRoute(
        "PUT",
        _ALLOWLIST,
        ADMIN,
        put_allowlist,
        "Replace the toolsets that an agent may use",
        AllowlistAnswer,
        AllowlistBody,
        errors=_REFUSALS,
    ),
    OwnRoute(
        "PUT",
        _BINDING,
        ADMIN,
        put_binding,
        "Bind a toolset to a provider",
        BindingAnswer,
        BindingBody,
        errors=(*_REFUSALS, 409),
    ),
)
