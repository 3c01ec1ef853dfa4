"""`GET /v1/tools`: the caller's tools in a model API's dialect, as the bytes that the catalog keeps."""

from __future__ import annotations

from typing import cast, get_args

from toolplug.catalog.render import Dialect
from toolplug.host.host import Host
from toolplug.http.caller_catalog import catalog_of
from toolplug.http.exchange import Exchange
from toolplug.http.if_none_match import has_version
from toolplug.http.problem import invalid_request

DIALECTS: tuple[str, ...] = get_args(Dialect)
DEFAULT_DIALECT = "chat"

_VARY = (b"vary", b"authorization, x-api-key")


async def list_tools(host: Host, exchange: Exchange) -> None:
    """Answer the list, or 304 to a client that has it. Raises `HttpProblem` and `AccessError`."""
    query = exchange.query()
    dialect = query.get("format", DEFAULT_DIALECT)
    if dialect not in DIALECTS:
        raise invalid_request(f"there is no format {dialect[:40]!r}; there are {', '.join(DIALECTS)}", "format")
    toolsets = [name for name in query.get("toolsets", "").split(",") if name]
    agent, session = query.get("agent") or None, query.get("session") or None
    catalog = await catalog_of(host, exchange.principal, agent, session, toolsets)
    etag = f'"{catalog.etag}-{dialect}"'.encode()
    headers = [(b"etag", etag), (b"cache-control", b"private, no-cache"), _VARY]
    if has_version(exchange.headers.get(b"if-none-match"), etag):
        await exchange.answer_unchanged(headers)
        return
    tools = catalog.render(cast("Dialect", dialect))  # a member, as was just checked
    await exchange.answer(200, b'{"tools":' + tools + b"}", headers=headers)
