"""Discovery on demand, and the acceptance of what it has put into quarantine."""

from __future__ import annotations

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.servers.answers import answer_server
from toolplug.http.servers.models import AcceptBody
from toolplug.http.servers.waiting import wanted_wait_s


async def discover_server(host: Host, exchange: Exchange) -> None:
    """Begin a discovery, or join the one that runs: 202 while it does, 200 for its end. Raises `McpServerRefused`."""
    wait_s = wanted_wait_s(exchange)
    view = await host.servers.discover(
        exchange.params["id"], by=exchange.principal, wait_s=wait_s, request_id=exchange.request_id
    )
    await answer_server(exchange, view, status=202 if view.record.status == "discovering" or not wait_s else 200)


async def accept_tools(host: Host, exchange: Exchange) -> None:
    """Take the new definitions of quarantined tools for good. Raises `McpServerRefused`; then nothing has changed."""
    body = await read_json(exchange, AcceptBody, empty=b"{}")
    view = await host.servers.accept(
        exchange.params["id"], body.tools, by=exchange.principal, request_id=exchange.request_id
    )
    await answer_server(exchange, view, status=200)
