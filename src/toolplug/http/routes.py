"""Every route of the host itself."""

from __future__ import annotations

from toolplug.http.approvals import APPROVAL_ROUTES
from toolplug.http.mcp.routes import MCP_ROUTES
from toolplug.http.openapi import Description
from toolplug.http.pages import browser_client, healthz, links_page, metrics, readyz
from toolplug.http.providers.admin import disable_provider, enable_provider, list_providers, reload
from toolplug.http.responses.routes import RESPONSE_ROUTES
from toolplug.http.routing import ADMIN, CALL, READ, HostRoute, Parameter
from toolplug.http.saved.routes import SAVED_ROUTES
from toolplug.http.servers.routes import SERVER_ROUTES
from toolplug.http.sessions.routes import SESSION_ROUTES
from toolplug.http.tools import DEFAULT_DIALECT, DIALECTS, call_tool, explain, list_tools
from toolplug.http.toolsets import TOOLSET_ROUTES
from toolplug.http.wire_models import (
    CallAnswer,
    CallBody,
    ExplainAnswer,
    Health,
    ProviderAnswer,
    ProviderList,
    Readiness,
    ReloadAnswer,
    ToolList,
)

_AGENT = Parameter("agent", "whose tools: an agent's")
_SESSION = Parameter("session", "whose tools: those of this session as well")
_TOOLSETS = Parameter("toolsets", "ids among the agent's, separated by commas; all of them when absent or empty")
_FORMAT = Parameter("format", f"the model API's dialect; {DEFAULT_DIALECT} when absent", DIALECTS)
_KEY = Parameter("Idempotency-Key", "the same key and body within a day give the first result", place="header")
_TOOL = Parameter("tool", "the tool's canonical or wire name", required=True)

_LISTING = (_FORMAT, _AGENT, _SESSION, _TOOLSETS)
_ENABLE = "/v1/providers/{key}/enable"
_DISABLE = "/v1/providers/{key}/disable"
_EXPLAINING = (_TOOL, _AGENT, _SESSION)
_TEXT = ("text/plain",)
_PAGE = ("text/html",)
_MODULE = ("text/javascript",)
_CALLED = ("application/json", "text/event-stream")

ROUTES = (
    HostRoute("GET", "/healthz", None, healthz, "Does the process live", Health),
    HostRoute("GET", "/readyz", None, readyz, "Can calls be served", Readiness, others={503: Readiness}),
    HostRoute("GET", "/metrics", None, metrics, "Counters for Prometheus", content_types=_TEXT),
    HostRoute("GET", "/", None, links_page, "A page of links", content_types=_PAGE),
    HostRoute(
        "GET",
        "/toolplug.js",
        None,
        browser_client,
        "The client for web pages",
        others={304: None},
        content_types=_MODULE,
    ),
    HostRoute(
        "GET", "/v1/tools", READ, list_tools, "The caller's tools", ToolList, None, _LISTING, {304: None}, (400, 404)
    ),
    HostRoute(
        "POST",
        "/v1/tool-calls",
        CALL,
        call_tool,
        "Call a tool; 200 however it ends",
        CallAnswer,
        CallBody,
        (_KEY,),
        errors=(400, 404, 409, 413, 415, 422),
        content_types=_CALLED,
    ),
    HostRoute("GET", "/v1/providers", READ, list_providers, "Every provider and its state", ProviderList),
    HostRoute("POST", _ENABLE, ADMIN, enable_provider, "Start a provider", ProviderAnswer, errors=(404, 422)),
    HostRoute("POST", _DISABLE, ADMIN, disable_provider, "Stop a provider", ProviderAnswer, errors=(404,)),
    HostRoute("POST", "/v1/reload", ADMIN, reload, "Read the configuration again", ReloadAnswer, errors=(422,)),
    HostRoute(
        "GET",
        "/v1/explain",
        ADMIN,
        explain,
        "Why a call would run or not",
        ExplainAnswer,
        parameters=_EXPLAINING,
        errors=(400, 404),
    ),
    *RESPONSE_ROUTES,
    *APPROVAL_ROUTES,
    *SESSION_ROUTES,
    *TOOLSET_ROUTES,
    *MCP_ROUTES,
    *SAVED_ROUTES,
    *SERVER_ROUTES,
)


def all_routes() -> tuple[HostRoute, ...]:
    """Every route of the host, with the one that describes them."""
    return (*ROUTES, Description(ROUTES).route)
