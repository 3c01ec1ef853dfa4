"""`sessions.md`: what goes over the wire between a host, an application and the clients of its session."""

from __future__ import annotations

from collections.abc import Mapping

from docs.generator.json_model import model
from docs.generator.markdown import code, page, table

from toolplug.catalog.schema import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES
from toolplug.config.units import format_size
from toolplug.parts.sessions.http.models import (
    CallState,
    CreateBody,
    Created,
    EventsAnswer,
    LoggedEvent,
    Metadata,
    RegisterAnswer,
    RegisterBody,
    ResultBody,
    SessionAnswer,
    SessionCallBody,
    SessionConfiguration,
    SessionTypeAnswer,
    ToolUpdates,
    UpdateAnswer,
    UpdateBody,
)
from toolplug.parts.sessions.limits import (
    HEARTBEAT_S,
    MAX_ENVIRONMENT_BYTES,
    MAX_PROMPT_BYTES,
    MAX_PROMPT_TOOLS,
    MAX_SET_BYTES,
    MAX_TOOLS,
    MAX_WAITING_BYTES,
    MAX_WAITING_EVENTS,
)
from toolplug.parts.sessions.streams.events import CANCELLED, REQUEST, STATUS, UPDATE
from toolplug.parts.sessions.tools.session_tool import LEVELS, TYPES
from toolplug.stores.store import KEPT_EVENTS

_HEAD = """
[HTTP](http.md) lists the routes and [errors](errors.md) their errors.
[Lend tools over HTTP](../how-to/lend-tools-over-http.md) shows all of them in an example.
"""

_TOOL = f"""
## A tool

| field | type | |
| --- | --- | --- |
| `name` | string | up to 128 letters, digits and `_ . - /` |
| `description` | string, optional | for the model |
| `inputSchema` | object, optional | a JSON Schema of type object: {format_size(MAX_SCHEMA_BYTES)}, \
{MAX_SCHEMA_DEPTH} levels, {MAX_SCHEMA_NODES} nodes; without it the tool takes no arguments |
| `outputSchema` | object, optional | a JSON Schema of what it returns |
| `annotations` | object, optional | the Model Context Protocol's: `readOnlyHint`, `idempotentHint`, … |
| `requires` | list, optional | capabilities by type, or `{{type, level}}`: at least that level |

## A capability

`{{type, level, resources}}`. `type` is one of {", ".join(map(code, TYPES))}; `level`, in ascending order, one of
{", ".join(map(code, LEVELS))}; `resources` is an optional list of names that the application chooses.
"""

_PROMPT = f"""
## GET …/prompt

The session in words, for a person to give to a model: what the application is, its tools, the address for MCP clients,
and what each of the common clients has to be told. `Accept: text/markdown` gives Markdown, everything else that allows
it `text/plain`; other types are 406 `not_acceptable`. What the application has written is quoted, in Markdown as a
fenced block, so that none of it can be taken for the host's words. At most {MAX_PROMPT_TOOLS} tools of
{format_size(MAX_PROMPT_BYTES)} are written out, and the others are counted.
"""

_KINDS = """
What the process has seen since it started, with all live sessions: [limits](limits.md) has how much it remembers.
"""

EVENTS: Mapping[str, tuple[str, str, str]] = {
    "connected": (
        "all",
        "`sessionCode, revision, registered, pluginStatus, tools, resumed`",
        "the stream starts: with a snapshot, or, after `Last-Event-ID`, with `resumed: true` and without `tools`",
    ),
    UPDATE: (
        "all",
        "`sessionCode, updates: {added, removed, modified}, revision, timestamp, reason`",
        "the changes, with complete definitions; `removed` has names",
    ),
    STATUS: (
        "all",
        "`sessionCode, status, timestamp`",
        "the plugin connected (`attached`) or disconnected (`detached`)",
    ),
    REQUEST: (
        "the plugin",
        "`id, tool, arguments, args, deadline, attempt, callId, hostRequestId, traceparent, tracestate`",
        "a call; `args` is `arguments` again; a higher `attempt`: it was sent before; the last two only with a trace",
    ),
    CANCELLED: ("the plugin", "`id, reason`", "no caller waits for this request"),
    "heartbeat": ("all", "`timestamp`", f"nothing has happened for {HEARTBEAT_S:g} s"),
    "resync": ("all", "`reason`", "events were missed: discard your state; `connected` with a snapshot follows"),
    "error": ("all", "`code, message`", "the stream ends"),
}
"""Recipients, data fields and meaning of each event."""

_STREAM = f"""
Server-Sent Events, `data` is always one line of JSON. `id` is the position of an event in the session's log: it
increases along a stream, with gaps. The log keeps {KEPT_EVENTS} events. A reader that is {MAX_WAITING_EVENTS} events or
{format_size(MAX_WAITING_BYTES)} behind gets `resync`. `connected`, `heartbeat`, `resync` and `error` are not in the
log. A `tool-request` is sent immediately and is in the log a moment later, without its arguments.
"""

_LIMITS = f"""
## Limits

The [configuration](configuration.md) has the limits that an operator can change; the number of tools is at most
{MAX_TOOLS}. Fixed limits are {format_size(MAX_SET_BYTES)} for all definitions of a session and for the body that
contains them, and {format_size(MAX_ENVIRONMENT_BYTES)} for capabilities and environment together.
"""


def sessions_page() -> str:
    """The page."""
    rows = ((code(name), *told) for name, told in EVENTS.items())
    return page(
        "Session protocol",
        _HEAD,
        model("POST /api/sessions", CreateBody),
        model("Its answer", Created),
        model("GET /api/sessions: one session", SessionAnswer),
        model("GET /api/session-types: one kind of application", SessionTypeAnswer),
        _KINDS,
        model("POST …/register-tools", RegisterBody),
        _TOOL,
        model("The answer to a registration", RegisterAnswer),
        model("Its sessionConfiguration", SessionConfiguration),
        model("POST …/update-tools", UpdateBody),
        model("Its toolUpdates", ToolUpdates),
        model("The answer to an update", UpdateAnswer),
        model("GET …/metadata", Metadata),
        _PROMPT,
        model("POST …/tool-calls", SessionCallBody),
        model("GET …/tool-calls/{id}", CallState),
        model("POST …/tool-results", ResultBody),
        "## GET …/stream\n" + _STREAM + "\n" + table(("event", "sent to", "data", "meaning"), rows),
        model("GET …/events", EventsAnswer),
        model("One event of the log", LoggedEvent),
        _LIMITS,
    )
