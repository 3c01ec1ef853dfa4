"""`/api/agents/{id}/toolsets`: which toolsets an agent may use."""

from __future__ import annotations

import orjson

from toolplug.errors import ToolsetRefused
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.toolsets.models import AllowlistBody
from toolplug.http.toolsets.refused import refused
from toolplug.toolsets.allowlists import Allowlist


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
