"""`GET /api/catalog`: every tool that there is for the caller, as bytes that the host keeps."""

from __future__ import annotations

from toolplug.host.host import Host
from toolplug.http.asked_session import asked_session
from toolplug.http.exchange import Exchange
from toolplug.http.if_none_match import has_version


async def show_catalog(host: Host, exchange: Exchange) -> None:
    """Answer the catalog, or 304 to a client that has it. Raises `AccessError`."""
    page = host.catalog_page(exchange.principal, session=await asked_session(host, exchange))
    etag = f'"{page.etag}"'.encode()
    headers = [(b"etag", etag), (b"cache-control", b"private, no-cache"), (b"vary", b"authorization, x-api-key")]
    if has_version(exchange.headers.get(b"if-none-match"), etag):
        await exchange.answer_unchanged(headers)
        return
    await exchange.answer(200, page.body, headers=headers)
