"""MCP servers and what is known of their tools: read from memory, nothing is reached or started."""

from __future__ import annotations

import orjson

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.scopes import ADMIN
from toolplug.http.servers.answers import PRIVATE, answer_server, server_fields


async def list_servers(host: Host, exchange: Exchange) -> None:
    """Answer the servers of the caller's tenant."""
    transport = exchange.principal.has_scope(ADMIN)
    views = host.servers.servers(exchange.principal.tenant)
    shown = {"servers": [server_fields(view, transport=transport) for view in views]}
    await exchange.answer(200, orjson.dumps(shown), headers=PRIVATE)


async def show_server(host: Host, exchange: Exchange) -> None:
    """Answer one server. Raises `McpServerRefused`."""
    view = host.servers.server(exchange.principal.tenant, exchange.params["id"])
    await answer_server(exchange, view, status=200)
