"""`GET /toolplug.js`: the client for web pages, an ES module that pages of listed origins may import as well."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.if_none_match import has_version

_TYPE = b"text/javascript; charset=utf-8"
_HEADERS = ((b"cache-control", b"public, no-cache"), (b"x-content-type-options", b"nosniff"))


async def browser_client(host: Host, exchange: Exchange) -> None:
    """Answer the module, or 304 to a browser that has it."""
    module = files("toolplug.http").joinpath("toolplug.js").read_bytes()
    etag = b'"%s"' % hashlib.sha256(module).hexdigest()[:32].encode()
    headers = [(b"etag", etag), *_HEADERS]
    if has_version(exchange.headers.get(b"if-none-match"), etag):
        await exchange.answer_unchanged(headers)
    else:
        await exchange.answer(200, module, content_type=_TYPE, headers=headers)
