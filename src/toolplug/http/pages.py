"""`GET /healthz`: the process lives. `GET /readyz`: calls can be served, or why not."""

from __future__ import annotations

import hashlib
from functools import partial
from html import escape
from importlib.resources import files

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from toolplug.execution.threads import in_own_thread
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange, has_version

_TYPE = b"text/javascript; charset=utf-8"
_MODULE_HEADERS = ((b"cache-control", b"public, no-cache"), (b"x-content-type-options", b"nosniff"))


async def browser_client(host: Host, exchange: Exchange) -> None:
    """Answer the module, or 304 to a browser that has it."""
    module = files("toolplug.http").joinpath("toolplug.js").read_bytes()
    etag = b'"%s"' % hashlib.sha256(module).hexdigest()[:32].encode()
    headers = [(b"etag", etag), *_MODULE_HEADERS]
    if has_version(exchange.headers.get(b"if-none-match"), etag):
        await exchange.answer_unchanged(headers)
    else:
        await exchange.answer(200, module, content_type=_TYPE, headers=headers)


async def metrics(host: Host, exchange: Exchange) -> None:
    """Answer in the format that the scraper asks for: Prometheus text, or OpenMetrics."""
    registry: CollectorRegistry = host.metrics
    encode, content_type = choose_encoder(exchange.header(b"accept") or "")
    body = await in_own_thread(partial(encode, registry))
    await exchange.answer(200, body, content_type=content_type.encode())


_LINKS = (
    ("/openapi.json", "every route, described as OpenAPI 3.1"),
    ("/v1/tools", "the tools that a model may call (needs credentials)"),
    ("/v1/providers", "every provider and its state (needs credentials)"),
    ("/api/sessions", "the sessions in which applications lend their tools (needs credentials)"),
    ("/api/mcp-servers", "the MCP servers, and what was found out of their tools (needs credentials)"),
    ("/api/catalog", "every tool that there is, callable or not (needs credentials)"),
    ("/toolplug.js", "the module with which a web page lends its functions as tools"),
    ("/metrics", "counters for Prometheus"),
    ("/readyz", "whether calls can be served"),
    ("/healthz", "whether the process lives"),
)

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>toolplug</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.6 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.4rem }}
dt {{ margin-top: .8rem; font-family: ui-monospace, monospace }}
dd {{ margin: 0; opacity: .75 }}
</style>
<h1>toolplug</h1>
<p>Tools that a language model can call. Call one with <code>POST {root}/v1/tool-calls</code>.</p>
<dl>
{links}
</dl>
</html>
"""

_PAGE_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
)


async def links_page(host: Host, exchange: Exchange) -> None:
    """Answer the page; its links begin where the application is mounted."""
    root = escape(exchange.scope.get("root_path", ""))
    links = "\n".join(f'<dt><a href="{root}{path}">{path}</a></dt><dd>{text}</dd>' for path, text in _LINKS)
    page = _PAGE.format(root=root, links=links)
    await exchange.answer(200, page.encode(), content_type=b"text/html; charset=utf-8", headers=_PAGE_HEADERS)


async def healthz(host: Host, exchange: Exchange) -> None:
    """Answer as long as the process does; the host need not be entered."""
    await exchange.answer(200, b'{"status":"ok"}')


async def readyz(host: Host, exchange: Exchange) -> None:
    """Answer 503 with the reasons while a part that calls need is down."""
    reasons = await host.ready()
    body = {"status": "not_ready" if reasons else "ready", "reasons": reasons}
    await exchange.answer(503 if reasons else 200, orjson.dumps(body))
