"""`GET /v1/explain`: every gate on the way of a call, and what decided."""

from __future__ import annotations

from dataclasses import asdict

import orjson

from toolplug.host.host import Host
from toolplug.http.asked_session import asked_session
from toolplug.http.exchange import Exchange
from toolplug.http.problem import invalid_request


async def explain(host: Host, exchange: Exchange) -> None:
    """Answer for the caller's own credential. Raises `HttpProblem`, and `AccessError` for the session."""
    query = exchange.query()
    tool = query.get("tool")
    if not tool:
        raise invalid_request("the query lacks 'tool', the name of the tool to explain", "tool")
    session = await asked_session(host, exchange)
    found = host.explain(tool, exchange.principal, agent=query.get("agent") or None, session=session)
    body = {
        "name": found.name,
        "found": found.found,
        "callable": found.callable,
        "provider": found.provider,
        "gates": [asdict(gate) for gate in found.gates],
        "settings": [setting._asdict() for setting in found.settings],
        "nearest": [item.name for item in found.nearest],
        "homes": {item.name: item.home for item in found.nearest},
    }
    await exchange.answer(200, orjson.dumps(body))
