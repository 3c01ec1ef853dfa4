"""`/api/agents/{id}/toolsets` and `/api/toolset-bindings/{id}`: which toolsets there are, and who may use them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from toolplug.errors import InvalidDefinition, ToolsetRefused
from toolplug.host.host import Host
from toolplug.host.toolset_desk import Binding
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import HttpProblem
from toolplug.http.toolset_models import AllowlistBody, BindingBody
from toolplug.toolsets.allowlists import Allowlist

_STATUS: Mapping[str, int] = {"prefix_taken": 409, "invalid_agent": 400}
_CANNOT_BE = 422


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
        raise _refused(error) from None
    await _answer_allowlist(exchange, agent, allowed)


async def put_binding(host: Host, exchange: Exchange) -> None:
    """Bind a toolset for the caller's tenant. Raises `HttpProblem`; then nothing has changed."""
    body = await read_json(exchange, BindingBody)
    binding = Binding(body.prefix, body.source, body.scope)
    try:
        bound = await host.toolsets.bind(
            exchange.params["id"], binding, by=exchange.principal, request_id=exchange.request_id
        )
    except ToolsetRefused as error:
        raise _refused(error) from None
    except InvalidDefinition as error:
        raise HttpProblem(_CANNOT_BE, "invalid_toolset", str(error), param=error.at) from None
    answer = {"id": bound.id, "prefix": bound.prefix, "from": bound.shown, "scope": binding.scope}
    await exchange.answer(200, orjson.dumps(answer))


async def _answer_allowlist(exchange: Exchange, agent: str, allowed: Allowlist) -> None:
    answer = {"agent": agent, "toolsets": allowed.toolsets, "origin": allowed.origin}
    await exchange.answer(200, orjson.dumps(answer))


def _refused(error: ToolsetRefused) -> HttpProblem:
    return HttpProblem(_STATUS.get(error.code, _CANNOT_BE), error.code, str(error), param=error.param)
