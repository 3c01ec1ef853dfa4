"""`GET /`: a page of links, without data and without anything from elsewhere."""

from __future__ import annotations

from html import escape

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange

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

_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
)


async def links_page(host: Host, exchange: Exchange) -> None:
    """Answer the page; its links begin where the application is mounted."""
    root = escape(exchange.scope.get("root_path", ""))
    links = "\n".join(f'<dt><a href="{root}{path}">{path}</a></dt><dd>{text}</dd>' for path, text in _LINKS)
    page = _PAGE.format(root=root, links=links)
    await exchange.answer(200, page.encode(), content_type=b"text/html; charset=utf-8", headers=_HEADERS)
