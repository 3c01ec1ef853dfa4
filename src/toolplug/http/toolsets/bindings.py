"""`PUT /api/toolset-bindings/{id}`: one more toolset for the caller's tenant."""

from __future__ import annotations

import orjson

from toolplug.errors import InvalidDefinition, ToolsetRefused
from toolplug.host.host import Host
from toolplug.host.toolsets.request import Binding
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import HttpProblem
from toolplug.http.toolsets.models import BindingBody
from toolplug.http.toolsets.refused import refused


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
