"""Adding, changing and removing MCP servers of the caller's tenant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import orjson
from pydantic import BaseModel

from toolplug.config.units import parse_duration
from toolplug.discovery.record import FoundTool
from toolplug.host.host import Host
from toolplug.host.servers.records import NewServer, ServerChange
from toolplug.host.servers.view import ServerView
from toolplug.http.caller_catalog import asked_session
from toolplug.http.exchange import Exchange, has_version
from toolplug.http.json_body import check_is_json, read_body, read_json, read_model
from toolplug.http.problem import HttpProblem, invalid_request
from toolplug.http.routing import ADMIN
from toolplug.http.servers.models import AcceptBody, AddServerBody, ChangeServerBody

LONGEST_WAIT_S = 60.0

_WORDS = {"true": LONGEST_WAIT_S, "": LONGEST_WAIT_S, "false": 0.0}


def wanted_wait_s(exchange: Exchange) -> float:
    """The seconds that the client wants to wait; 0 where it does not. Raises `HttpProblem`."""
    given = exchange.query().get("wait", "false")
    if given in _WORDS:
        return _WORDS[given]
    try:
        wait_s = parse_duration(given)
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= LONGEST_WAIT_S:
        message = f"'wait' should be true, or a duration such as 20s of at most {LONGEST_WAIT_S:g} s"
        raise invalid_request(message, "wait")
    return wait_s


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


async def show_catalog(host: Host, exchange: Exchange) -> None:
    """Answer the catalog, or 304 to a client that has it. Raises `AccessError`."""
    page = host.catalog_page(exchange.principal, session=await asked_session(host, exchange))
    etag = f'"{page.etag}"'.encode()
    headers = [(b"etag", etag), (b"cache-control", b"private, no-cache"), (b"vary", b"authorization, x-api-key")]
    if has_version(exchange.headers.get(b"if-none-match"), etag):
        await exchange.answer_unchanged(headers)
        return
    await exchange.answer(200, page.body, headers=headers)


M = TypeVar("M", bound=BaseModel)

_OF_COMMANDS = ("command", "args", "env", "cwd")


async def read_server(exchange: Exchange, model: type[M]) -> M:
    """The body. Raises `HttpProblem`, and first of all for one that names a command."""
    check_is_json(exchange)
    body = await read_body(exchange.receive, exchange.max_body)
    _refuse_commands(body)
    return read_model(body, model)


def _refuse_commands(body: bytes) -> None:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return
    named = [name for name in _OF_COMMANDS if isinstance(fields, dict) and name in fields]
    if named:
        message = "a server that is started by a command is taken from the operator's file only; add one by its url"
        raise HttpProblem(403, "stdio_from_http", message, param=named[0])


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
