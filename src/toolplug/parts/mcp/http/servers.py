"""Adding, changing and removing MCP servers of the caller's tenant."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

from pydantic import AfterValidator, BeforeValidator, Field
from starlette.responses import Response

from toolplug.catalog.call import ADMIN, OPERATOR, Principal
from toolplug.catalog.definition import Offer, ToolDefinition
from toolplug.catalog.exact_json import Answer
from toolplug.config.units import parse_duration
from toolplug.execution.accounting import audit_block
from toolplug.execution.plans import AskCaller, Policy, PolicyWord, ToolRule
from toolplug.host.file.settings import of_one_tool, rule
from toolplug.http.bodies.request_body import CamelBody, Fields, OrjsonResponse, absent, read_json
from toolplug.http.errors import HttpProblem, invalid_request
from toolplug.http.requests import HostRequest, acting, query_fields
from toolplug.http.routing import READ, Parameter, answers, route
from toolplug.parts.mcp.discovery.record import FoundTool, Status
from toolplug.parts.mcp.limits import LONGEST_DISCOVERY_S
from toolplug.parts.mcp.running import HostServers
from toolplug.parts.mcp.server_records import ServerRecord, ServerSource, ServerState, ServerView, not_found
from toolplug.parts.mcp.servers import McpServers, servers_of
from toolplug.parts.mcp.settings import SERVER_ID

MAX_TOOL_NAMES = 1000
MAX_HEADERS = 100

JsonObject = dict[str, object]

_Headers = Annotated[
    dict[str, str], Field(max_length=MAX_HEADERS, description="sent with every request; never shown again")
]
_Enabled = Annotated[bool, Field(description="false: never reached, no tools")]
_Rules = Annotated[
    dict[
        str,
        Annotated[
            ToolRule, BeforeValidator(rule, json_schema_input_type=ToolRule | Policy), AfterValidator(of_one_tool)
        ],
    ],
    Field(
        max_length=MAX_TOOL_NAMES,
        description="rules by the server's own names: a policy, or policy, limits, tenants and offer",
    ),
]
_Offer = Annotated[Offer, Field(description="to models, of the tools that tools says nothing of")]
_Timeout = Annotated[
    int, Field(ge=1, le=int(LONGEST_DISCOVERY_S * 1000), description="how long listing its tools may take")
]


class AddServerBody(CamelBody):
    """A server for the caller's tenant, reached over Streamable HTTP. A command is never taken over HTTP."""

    id: Annotated[str, Field(description="a lower-case letter, then up to 63 of a-z 0-9 _ -")]
    url: Annotated[str, Field(description="of its Streamable HTTP endpoint; public, or listed under egress.allow")]
    headers: _Headers = {}  # noqa: RUF012  pydantic copies it, and the model is frozen
    enabled: _Enabled = True
    policy: Annotated[Policy, Field(description="of the tools that tools says nothing of")] = "ask"
    offer: _Offer = "always"
    tools: _Rules = {}  # noqa: RUF012  as above
    discovery_timeout_ms: _Timeout = 30_000


class ChangeServerBody(CamelBody):
    """What is to be changed, each part whole; what is left out stays. Of the file's servers: tools and enabled."""

    url: Annotated[str, Field(json_schema_extra=absent)] = ""
    headers: Annotated[_Headers, Field(json_schema_extra=absent)] = {}  # noqa: RUF012  as above
    enabled: Annotated[_Enabled, Field(json_schema_extra=absent)] = True
    policy: Annotated[Policy, Field(json_schema_extra=absent)] = "ask"
    offer: Annotated[_Offer, Field(json_schema_extra=absent)] = "always"
    tools: Annotated[_Rules, Field(json_schema_extra=absent)] = {}  # noqa: RUF012  as above
    discovery_timeout_ms: Annotated[_Timeout, Field(json_schema_extra=absent)] = 30_000


class AcceptBody(CamelBody):
    """The quarantined tools that are accepted as they are now."""

    tools: list[str] | None = Field(
        None, max_length=MAX_TOOL_NAMES, description="by the server's own names; all when absent"
    )


class TransportAnswer(Answer):
    """How the server is reached, with `***` in place of what could be a secret.

    For the scope `admin`; of a server of the file, for `operator`.
    """

    command: NotRequired[str]
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]
    url: NotRequired[str]
    headers: NotRequired[dict[str, str]]
    oauth: NotRequired[JsonObject]


class AskCallerAnswer(Answer):
    """The policy `{ask: caller}`."""

    ask: Literal["caller"]


PolicyAnswer = PolicyWord | AskCallerAnswer


class AcceptedDefinition(Answer):
    """A tool's definition as it was accepted."""

    description: str
    inputSchema: JsonObject
    outputSchema: NotRequired[JsonObject]


class FoundToolAnswer(Answer):
    """A tool as it was found last, with what was cut from its definition at the door."""

    name: Annotated[str, Field(description="the server's own")]
    description: str
    inputSchema: JsonObject
    outputSchema: NotRequired[JsonObject]
    policy: PolicyAnswer
    cut: Annotated[list[str], Field(description="what was removed, each as `/path: why`")]
    quarantined: Annotated[bool, Field(description="it is new or has changed, and is not accepted yet")]
    isNew: Annotated[bool, Field(description="it is quarantined, and no tool of its name was ever accepted")]
    accepted: NotRequired[Annotated[AcceptedDefinition, Field(description="of a changed tool, where it is kept")]]


class ServerAnswer(Answer):
    """A server, and what was found when its tools were listed last."""

    id: str
    source: ServerSource
    enabled: bool
    policy: PolicyAnswer
    pin: Annotated[bool, Field(description="is a tool quarantined that is new or whose definition changes")]
    toolPolicies: Annotated[dict[str, PolicyAnswer], Field(description="of tools with a policy of their own")]
    transport: NotRequired[
        Annotated[TransportAnswer, Field(title="Transport", description="for admin; of the file's, for operator")]
    ]
    state: Annotated[ServerState, Field(description="quarantined: none of its tools can be called yet")]
    status: Annotated[Status, Field(description="of the last discovery")]
    tools: list[FoundToolAnswer]
    lastDiscovery: str | None
    error: str | None
    configHash: Annotated[str, Field(description="equal for configurations that reach the same server")]
    stale: Annotated[bool, Field(description="the tools are those of an earlier discovery")]
    nextRetry: str | None
    leftOut: Annotated[list[str], Field(description="listed tools that are not among these, and why")]
    announcesChanges: Annotated[
        bool | None, Field(description="false: a change is found only by the next discovery; null: not known")
    ]


class ServerList(Answer):
    """The tenant's servers: those of the file, then those added over HTTP."""

    servers: list[ServerAnswer]


_ALL = "/api/mcp-servers"
_ONE = f"{_ALL}/{{id}}"
_ID = Parameter("id", "of a server", place="path", pattern=SERVER_ID)
_WAIT = Parameter("wait", "for the end of the discovery: true, or a duration of at most 60s")

LONGEST_WAIT_S = 60.0

_WORDS = {"true": LONGEST_WAIT_S, "": LONGEST_WAIT_S, "false": 0.0}


def wanted_wait_s(request: HostRequest) -> float:
    """Return the seconds that the client wants to wait; 0 by default. Raises `HttpProblem`."""
    given = query_fields(request).get("wait", "false")
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


async def _present(request: HostRequest) -> McpServers | None:
    """Return the servers; None, and nothing is loaded for it, where there is none."""
    servers = request.state["host"].servers
    assert isinstance(servers, HostServers), "the host's servers are those of this part"
    return await servers.present()


async def _servers_to(what: str, request: HostRequest) -> McpServers:
    """Return the servers for a change of one. Raises `ApiError` where there is none, which is audited."""
    servers, actor = await _present(request), acting(request)
    if servers is None:
        with audit_block(f"mcp_server.{what}", actor["by"], actor["request_id"], lambda: "_unknown"):
            raise not_found(request.path_params["id"], {})
    return servers


def _read_record(name: str, given: dict[str, Any]) -> ServerRecord:
    if "discovery_timeout_ms" in given:
        given["discovery_timeout_s"] = given.pop("discovery_timeout_ms") / 1000
    given["id"] = name
    return ServerRecord(**given)


PRIVATE = {"cache-control": "private, no-cache"}


def _server_response(request: HostRequest, view: ServerView, *, status: int = 200) -> OrjsonResponse[ServerAnswer]:
    """Return one server as this caller may see it."""
    return OrjsonResponse(server_fields(view, request.state["principal"]), status, PRIVATE)


class _Reached(TypedDict, total=False):
    transport: TransportAnswer


class _Output(TypedDict, total=False):
    outputSchema: JsonObject


class _Before(TypedDict, total=False):
    accepted: AcceptedDefinition


def server_fields(view: ServerView, viewer: Principal) -> ServerAnswer:
    """Return a server as this viewer may see it (docs/reference/discovery.md)."""
    record = view.record
    sees = viewer.has_scope(OPERATOR if view.source == "file" else ADMIN)
    reached: _Reached = {"transport": cast("TransportAnswer", view.transport)} if sees else {}
    return {
        "id": view.id,
        "source": view.source,
        "enabled": view.enabled,
        "policy": _policy(view.policy),
        "pin": view.pin,
        "toolPolicies": {name: _policy(policy) for name, policy in view.tools.items()},
        **reached,
        "state": view.state,
        "status": record.status,
        "tools": [_tool(view, found) for found in record.tools],
        "lastDiscovery": record.last_discovery,
        "error": record.error,
        "configHash": record.config_hash,
        "stale": record.stale,
        "nextRetry": record.next_retry,
        "leftOut": list(record.left_out),
        "announcesChanges": record.announces_changes,
    }


def _tool(view: ServerView, found: FoundTool) -> FoundToolAnswer:
    before: _Before = {} if found.accepted is None else {"accepted": _define(found.accepted)}
    return {
        "name": found.name,
        **_define(found.definition),
        "policy": _policy(view.tools.get(found.name, view.policy)),
        "cut": [*found.cut],
        "quarantined": found.quarantined,
        "isNew": found.is_new,
        **before,
    }


def _define(definition: ToolDefinition) -> AcceptedDefinition:
    output = definition.output_schema
    given: _Output = {} if output is None else {"outputSchema": output.value}
    return {"description": definition.description, "inputSchema": definition.parameters.value, **given}


def _policy(policy: Policy) -> PolicyAnswer:
    return {"ask": policy.ask} if isinstance(policy, AskCaller) else policy


_OF_COMMANDS = ("command", "args", "env", "cwd")


def refuse_commands(fields: Fields) -> None:
    """Raise `HttpProblem` for a server that is started by a command."""
    named = [name for name in _OF_COMMANDS if name in fields]
    if named:
        message = "a server that is started by a command is taken from the operator's file only; add one by its url"
        raise HttpProblem(403, "stdio_from_http", message, param=named[0])


@route("GET", _ALL, READ, "The MCP servers")
@answers(ServerList)
async def list_servers(request: HostRequest) -> OrjsonResponse[ServerList]:
    """Answer the servers of the caller's tenant."""
    state = request.state
    reach = state["host"].reach(state["principal"])
    servers = await _present(request)
    known = () if servers is None else servers.servers(state["principal"].tenant)
    views = [view for view in known if reach is None or view.id in reach.servers]
    return OrjsonResponse({"servers": [server_fields(view, state["principal"]) for view in views]}, 200, PRIVATE)


@route("POST", _ALL, ADMIN, "Add an MCP server by its URL", AddServerBody, parameters=(_WAIT,))
@answers(ServerAnswer, status=202, errors=(409, 422))
async def add_server(request: HostRequest) -> OrjsonResponse[ServerAnswer]:
    """Take a new server, and answer before its tools are known unless the client waits. Raises `ApiError`."""
    wait_s = wanted_wait_s(request)
    body = await read_json(request, AddServerBody, check=refuse_commands)
    record = _read_record(body.id, dict(body))
    servers, actor = await servers_of(request.state["host"]), acting(request)
    view = await servers.add(record, **actor)
    if wait_s and view.enabled:
        view = await servers.discover(view.id, wait_s=wait_s, **actor)
    return _server_response(request, view, status=202)


@route("GET", _ONE, READ, "One MCP server", parameters=(_ID,))
@answers(ServerAnswer, errors=(404,))
async def show_server(request: HostRequest) -> OrjsonResponse[ServerAnswer]:
    """Answer one server. Raises `ApiError`."""
    state = request.state
    name, reach = request.path_params["id"], state["host"].reach(state["principal"])
    servers = await _present(request) if reach is None or name in reach.servers else None
    if servers is None:
        raise not_found(name, {})
    return _server_response(request, servers.server(state["principal"].tenant, name))


@route("PATCH", _ONE, ADMIN, "Change an MCP server", ChangeServerBody, parameters=(_ID,))
@answers(ServerAnswer, errors=(404, 409, 422))
async def change_server(request: HostRequest) -> OrjsonResponse[ServerAnswer]:
    """Change what the body names. Raises `ApiError`; then nothing has changed."""
    body = await read_json(request, ChangeServerBody, check=refuse_commands)
    given = {name: getattr(body, name) for name in body.model_fields_set}
    change = _read_record(request.path_params["id"], given)
    view = await (await _servers_to("change", request)).change(change, **acting(request))
    return _server_response(request, view)


@route("DELETE", _ONE, ADMIN, "Remove an MCP server", parameters=(_ID,))
@answers(status=204, errors=(404, 409))
async def remove_server(request: HostRequest) -> Response:
    """Forget a server and what was found. Raises `ApiError`."""
    await (await _servers_to("remove", request)).remove(request.path_params["id"], **acting(request))
    return Response(status_code=204)


@route("POST", f"{_ONE}/discover", ADMIN, "Discover the tools of an MCP server", parameters=(_ID, _WAIT))
@answers(ServerAnswer, status=202, others={200: ServerAnswer}, errors=(400, 404, 409))
async def discover_server(request: HostRequest) -> OrjsonResponse[ServerAnswer]:
    """Begin a discovery, or join the one that runs: 202 while it does, 200 for its end. Raises `ApiError`."""
    wait_s = wanted_wait_s(request)
    view = await (await _servers_to("discover", request)).discover(
        request.path_params["id"], wait_s=wait_s, **acting(request)
    )
    return _server_response(request, view, status=202 if view.record.status == "discovering" or not wait_s else 200)


@route(
    "POST",
    f"{_ONE}/accept",
    ADMIN,
    "Accept the changed definitions of quarantined tools",
    AcceptBody,
    parameters=(_ID,),
    body_required=False,
)
@answers(ServerAnswer, errors=(404, 409))
async def accept_tools(request: HostRequest) -> OrjsonResponse[ServerAnswer]:
    """Take the new definitions of quarantined tools for good. Raises `ApiError`; then nothing has changed."""
    body = await read_json(request, AcceptBody, empty=b"{}")
    view = await (await _servers_to("accept", request)).accept(request.path_params["id"], body.tools, **acting(request))
    return _server_response(request, view)
