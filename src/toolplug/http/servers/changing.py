"""Adding, changing and removing MCP servers of the caller's tenant."""

from __future__ import annotations

from toolplug.host.host import Host
from toolplug.host.servers.request import NewServer, ServerChange
from toolplug.http.exchange import Exchange
from toolplug.http.servers.answers import answer_server
from toolplug.http.servers.bodies import read_server
from toolplug.http.servers.models import AddServerBody, ChangeServerBody
from toolplug.http.servers.waiting import wanted_wait_s


async def add_server(host: Host, exchange: Exchange) -> None:
    """Take a new server, and answer before its tools are known unless the client waits. Raises `McpServerRefused`."""
    wait_s = wanted_wait_s(exchange)
    body = await read_server(exchange, AddServerBody)
    wanted = NewServer(
        id=body.id,
        url=body.url,
        headers=body.headers,
        enabled=body.enabled,
        policy=body.policy,
        tools=body.tools,
        discovery_timeout_s=body.discovery_timeout_ms / 1000,
    )
    by, request_id = exchange.principal, exchange.request_id
    view = await host.servers.add(wanted, by=by, request_id=request_id)
    if wait_s and view.enabled:
        view = await host.servers.discover(view.id, by=by, wait_s=wait_s, request_id=request_id)
    await answer_server(exchange, view, status=202)


async def change_server(host: Host, exchange: Exchange) -> None:
    """Change what the body names. Raises `McpServerRefused`; then nothing has changed."""
    body = await read_server(exchange, ChangeServerBody)
    said = body.model_fields_set
    change = ServerChange(
        url=body.url if "url" in said else None,
        headers=body.headers if "headers" in said else None,
        enabled=body.enabled if "enabled" in said else None,
        policy=body.policy if "policy" in said else None,
        tools=body.tools if "tools" in said else None,
        discovery_timeout_s=body.discovery_timeout_ms / 1000 if "discovery_timeout_ms" in said else None,
    )
    view = await host.servers.change(
        exchange.params["id"], change, by=exchange.principal, request_id=exchange.request_id
    )
    await answer_server(exchange, view, status=200)


async def remove_server(host: Host, exchange: Exchange) -> None:
    """Forget a server and what was found. Raises `McpServerRefused`."""
    await host.servers.remove(exchange.params["id"], by=exchange.principal, request_id=exchange.request_id)
    await exchange.answer_done()
