"""`http.md`: the host's own routes."""

from __future__ import annotations

from docs.generator.json_model import model
from docs.generator.markdown import code, page, sentence, table

from toolplug.config.units import format_size
from toolplug.host.file.part_sections import built_in
from toolplug.http.bodies.request_body import DEFAULT_MAX_BODY, MAX_FILE_BODY
from toolplug.http.catalog import ToolInfo
from toolplug.http.errors import Error
from toolplug.http.providers.admin import ProviderAnswer, ReloadAnswer
from toolplug.http.request_checks import MAX_HEADER_BYTES, MAX_HEADERS
from toolplug.http.routes import described_routes
from toolplug.http.routing import HostRoute
from toolplug.http.tool_operations import CallRefusal
from toolplug.http.tools import CallAnswer, CallBody
from toolplug.parts.mcp.http.servers import AddServerBody, FoundToolAnswer, ServerAnswer
from toolplug.providers.entry import ProviderState

_HEAD = """
The routes of the host; each active provider adds its own. `GET /v1/openapi.json` describes all of them. Send
credentials as `Authorization: Bearer …` or `X-API-Key: …`. The answer repeats `X-Request-Id`, or has a generated one if
the request has none.
"""

_CALL = """
The answer is 200 whatever the status of the call is: see [statuses](statuses.md). A request with the same
`Idempotency-Key` (valid for a day, for each caller) gets the first result again, with `Idempotent-Replayed: true`. If
the first call left none, it gets `tool_error` with the code `outcome_unknown`: the tool does not run a second time.
With `Accept: text/event-stream` the answer is a stream of `progress` events, then one `result`. If the client
disconnects, its call is cancelled.
"""

_OPERATION = """
The body is the arguments, empty for none. The answer is the result where that is an object, else `{"output": …}`, with
`parts` where there are some; text takes the place of an object that is too long, or that the tool did not give, and the
document describes both. It is meant for programs that import OpenAPI documents: `GET /openapi.json` has one such
operation for each tool of its caller, and nothing else. An agent or session in its query is a part of the document's
server, `/v1/tools/agent=NAME,session=CODE`, since such programs lose queries; `/openapi.json` below that is the same
document. `Idempotency-Key` and a client that disconnects count as for `POST /v1/tool-calls`.

A refusal is `{"status": …, "error": "words"}`: 403 for `denied`, with the approval that the call needs; 404 for
`unknown_tool`, 422 for `invalid_arguments`, 429 for `limited`, 503 for `unavailable` if the tool was not reached.
Everything that may have run is 422 (`tool_error`, `timeout`, `panic`, the code `outcome_unknown`), since clients and
proxies repeat what is answered with 5xx.
"""

_ERROR = """
An error is the value of `error` in `{"error": {…}}`; for an invalid configuration the answer also has `problems`.
[Errors](errors.md) lists the codes.
"""

_LIMITS = f"""
## Limits

A body has at most {format_size(DEFAULT_MAX_BODY)} (`http.max_body`), an upload to a provider's `…/files` at most
{format_size(MAX_FILE_BODY)}. A request has at most {MAX_HEADERS} headers, together {format_size(MAX_HEADER_BYTES)}. The
host must be the bound address, `localhost`, or one of `http.allowed_hosts`; a page of another site may call only
from one of `http.allowed_origins`.
"""


def http_page() -> str:
    """The page."""
    return page(
        "HTTP API",
        _HEAD,
        table(("route", "scope", "description", "parameters"), map(_row, described_routes(built_in()))),
        model("POST /v1/tool-calls", CallBody) + "\n" + _CALL,
        model("The result of a call", CallAnswer),
        model("POST /v1/tools/{name}", CallRefusal) + "\n" + _OPERATION,
        model("A provider", ProviderAnswer) + f"\n\nStates: {', '.join(code(state) for state in ProviderState)}.",
        model("What a reload did", ReloadAnswer),
        model("An MCP server", ServerAnswer),
        model("A tool of an MCP server", FoundToolAnswer),
        model("A new MCP server", AddServerBody),
        model("A tool of the catalog", ToolInfo),
        model("An error", Error) + "\n\n" + _ERROR,
        _LIMITS,
    )


def _row(route: HostRoute) -> tuple[str, str, str, str]:
    given = (
        f"{code(item.name)}{' (header)' if item.place == 'header' else ''}: {item.description}"
        + (f" ({', '.join(map(code, item.choices))})" if item.choices else "")
        for item in route.parameters
        if item.place != "path"
    )
    return (
        code(f"{route.method} {route.path}"),
        _who(route),
        sentence(route.summary),
        "; ".join(given),
    )


def _who(route: HostRoute) -> str:
    allowed = [code(route.scope)] if route.scope else []
    allowed += ["the plugin's token"] if route.audience != "callers" else []
    return " or ".join(allowed) or "open"
