"""A server as its answers show it."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from toolplug.discovery.record import FoundTool
from toolplug.host.servers.view import ServerView
from toolplug.http.exchange import Exchange
from toolplug.http.scopes import ADMIN

PRIVATE = ((b"cache-control", b"private, no-cache"),)


async def answer_server(exchange: Exchange, view: ServerView, *, status: int) -> None:
    """Answer one server as this caller may see it."""
    shown = server_fields(view, transport=exchange.principal.has_scope(ADMIN))
    await exchange.answer(status, orjson.dumps(shown), headers=PRIVATE)


def server_fields(view: ServerView, *, transport: bool) -> dict[str, object]:
    """Server and record as CONTRACT.md section 8 has them; how it is reached, for operators alone."""
    record = view.record
    return {
        "id": view.id,
        "source": view.source,
        "enabled": view.enabled,
        "policy": view.policy,
        "pin": view.pin,
        "toolPolicies": dict(view.tools),
        **({"transport": dict(view.transport)} if transport else {}),
        "status": record.status,
        "tools": [dict(_tool(view, found)) for found in record.tools],
        "lastDiscovery": record.last_discovery,
        "error": record.error,
        "configHash": record.config_hash,
        "stale": record.stale,
        "nextRetry": record.next_retry,
        "leftOut": list(record.left_out),
    }


def _tool(view: ServerView, found: FoundTool) -> Iterator[tuple[str, object]]:
    definition = found.definition
    yield "name", found.name
    yield "description", definition.description
    yield "inputSchema", definition.parameters.value
    if definition.output_schema is not None:
        yield "outputSchema", definition.output_schema.value
    yield "policy", view.tools.get(found.name, view.policy)
    yield "cut", list(found.cut)
    yield "quarantined", found.quarantined
