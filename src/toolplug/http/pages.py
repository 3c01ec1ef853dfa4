"""The routes without credentials: health, readiness, metrics, the browser module and the page of links."""

from __future__ import annotations

import hashlib
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from typing import Literal
from urllib.parse import quote

from starlette.responses import HTMLResponse, RedirectResponse, Response
from typing_extensions import TypedDict

from toolplug import library_types
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.requests import HostRequest, has_version, mount_path
from toolplug.http.routing import NOT_MODIFIED, answers, route
from toolplug.providers.registry import FunctionRegistry
from toolplug.runtime.threads import in_own_thread


class Health(TypedDict):
    """That the process lives."""

    status: Literal["ok"]


class Readiness(TypedDict):
    """Whether calls can be served, and if not, why."""

    status: Literal["ready", "not_ready"]
    reasons: list[str]


_TYPE = "text/javascript; charset=utf-8"
_MODULE_HEADERS = {"cache-control": "public, no-cache", "x-content-type-options": "nosniff"}

_LINKS = (
    ("/v1/openapi.json", "every route, described as OpenAPI 3.1"),
    ("/openapi.json", "the tools that a model may call, described as OpenAPI 3.1 (needs credentials)"),
    ("/v1/tools", "the tools that a model may call (needs credentials)"),
    ("/v1/providers", "every provider and its state (needs credentials)"),
    ("/api/sessions", "the sessions in which applications lend their tools (needs credentials)"),
    ("/api/mcp-servers", "the MCP servers and their tools (needs credentials)"),
    ("/api/catalog", "every tool, and whether you may call it (needs credentials)"),
    ("/toolplug.js", "the module with which a web page lends its functions as tools"),
    ("/metrics", "counters for Prometheus"),
    ("/readyz", "whether calls can be served"),
    ("/healthz", "whether the process lives"),
)

_OF_PARTS = frozenset({"/api/sessions"})
"""Those of them that a part of the host serves."""

_PLACES = (
    ("/mcp", "MCP clients connect to"),
    ("/v1/responses", "Clients of the Responses API connect to"),
)
"""Where clients connect that a part of the host serves: a browser has nothing to see there."""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>toolplug</title>
<link rel="icon" href="{icon}">
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.6 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.4rem }}
dt {{ margin-top: .8rem; font-family: ui-monospace, monospace }}
dd {{ margin: 0; opacity: .75 }}
</style>
<h1>toolplug</h1>
<p>Tools that a language model can call. Call one with <code>POST {root}/v1/tool-calls</code>.{places}
The provider <code>console</code> has a page that shows and tries them.</p>
<dl>
{links}
</dl>
</html>
"""

# Within the page: a browser asks every host for /favicon.ico else, and a host has no such path.
_ICON = "data:image/svg+xml," + quote(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#0b7a75"/>'
    '<path d="M12 6v6M20 6v6M9 12h14v3a7 7 0 0 1-14 0zM16 22v4" fill="none" stroke="#fff" stroke-width="2.6"'
    ' stroke-linecap="round" stroke-linejoin="round"/></svg>'
)

_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


@route("GET", "/healthz", None, "Does the process live")
@answers(Health)
async def healthz(request: HostRequest) -> OrjsonResponse[Health]:
    """Answer as long as the process does; the host need not be entered."""
    return OrjsonResponse({"status": "ok"})


@route("GET", "/readyz", None, "Can calls be served")
@answers(Readiness, others={503: Readiness})
async def readyz(request: HostRequest) -> OrjsonResponse[Readiness]:
    """Answer 503 while a part that calls need is down. `reasons` name the part only: anybody may ask."""
    reasons = [down.part for down in await request.state["host"].ready()]
    body: Readiness = {"status": "not_ready" if reasons else "ready", "reasons": reasons}
    return OrjsonResponse(body, 503 if reasons else 200)


@route("GET", "/metrics", None, "Counters for Prometheus")
@answers(content_types=("text/plain",))
async def metrics(request: HostRequest) -> Response:
    """Answer in the format that the scraper requests: Prometheus text, or OpenMetrics."""
    registry: library_types.CollectorRegistry = await request.state["host"].scrape()
    # prometheus-client decides by the `Accept` header, as its own server does.
    encode, content_type = library_types.choose_encoder(request.headers.get("accept") or "")
    # In a thread: collectors of providers run here, and may block.
    body = await in_own_thread(partial(encode, registry))
    return Response(body, media_type=content_type)


_CONSOLE = "/console"


def console_path(registry: FunctionRegistry) -> str | None:
    """Return the path of the console that a plugin offers to everyone; None if there is none."""
    offered = any(each.public and each.label == f"GET {_CONSOLE}" for each in registry.routes)
    return _CONSOLE if offered else None


@route("GET", "/", None, "A page of links, or the console")
@answers(others={307: None}, content_types=("text/html",))
async def links_page(request: HostRequest) -> Response:
    """Answer the page; its links begin where the application is mounted. Redirect where a plugin offers a console."""
    mount = mount_path(request)
    console = console_path(request.state["host"].registry)
    if console is not None:
        return RedirectResponse(mount + console)
    root: str = import_module("html").escape(mount)  # 0.3 MB, for a page that only people ask for
    served = {path for part in request.state["host"].parts for path in part.paths}
    there = [(path, text) for path, text in _LINKS if path not in _OF_PARTS or path in served]
    links = "\n".join(f'<dt><a href="{root}{path}">{path}</a></dt><dd>{text}</dd>' for path, text in there)
    places = "".join(f"\n{who} <code>{root}{path}</code>." for path, who in _PLACES if path in served)
    page = _PAGE.format(root=root, links=links, places=places, icon=_ICON)
    return HTMLResponse(page, headers=_PAGE_HEADERS)


@cache
def _browser_module() -> tuple[bytes, str]:
    """Return the module and its ETag; read once, since anybody may ask for it."""
    module = files("toolplug.http").joinpath("toolplug.js").read_bytes()
    return module, f'"{hashlib.sha256(module).hexdigest()[:32]}"'


@route("GET", "/toolplug.js", None, "The client for web pages")
@answers(others=NOT_MODIFIED, content_types=("text/javascript",))
async def browser_client(request: HostRequest) -> Response:
    """Answer the module, or 304 to a browser that has it."""
    module, etag = _browser_module()
    headers = {"etag": etag, **_MODULE_HEADERS}
    if has_version(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(module, headers=headers, media_type=_TYPE)
