"""The routes of toolsets and agents, and of saved toolsets: built, listed, shown, deleted, exported, imported."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, get_args

from pydantic import BaseModel, Field
from starlette.responses import Response
from typing_extensions import TypedDict

from toolplug.catalog.call import ADMIN, CODE_PATTERN
from toolplug.catalog.definition import Offer
from toolplug.catalog.exact_json import Answer
from toolplug.errors import ApiError, ConfigError, InvalidDefinition
from toolplug.host.file.settings import Scope
from toolplug.host.toolsets.records import Binding
from toolplug.http.bodies.request_body import JSON, CamelBody, OrjsonResponse, read_body, read_json, validate_fields
from toolplug.http.errors import RETRY_AFTER_S, HttpProblem, invalid_request
from toolplug.http.requests import HostRequest, acting, query_fields, requested_session
from toolplug.http.routing import CALL, READ, Parameter, answers, route
from toolplug.http.tools import MAX_TOOLSETS
from toolplug.runtime.threads import TooManyWaiting
from toolplug.toolsets.registered import Allowlist
from toolplug.toolsets.saved.document import (
    Document,
    DocumentName,
    Form,
    NotePart,
    ToolRefPart,
    document_text,
)
from toolplug.toolsets.saved.saved_toolset import (
    MAX_DESCRIPTION,
    MAX_NOTES,
    MAX_TOOLS,
    Caller,
    NotesAnswer,
    NotesGone,
    ShownToolset,
    ToolsetAnswer,
    ToolsetLineAnswer,
)


class AllowlistBody(BaseModel, extra="forbid", strict=True, frozen=True):
    """The toolsets of an agent, in place of those that it had."""

    toolsets: Annotated[
        list[str], Field(max_length=MAX_TOOLSETS, description="ids, in the order in which a model sees them")
    ]


class AllowlistAnswer(TypedDict):
    """The toolsets that an agent may use, and the line or the request that says so."""

    agent: str
    toolsets: list[str]
    origin: str


class BindingBody(BaseModel, extra="forbid", strict=True, frozen=True):
    """A toolset: the tools of a provider or of an MCP server under a prefix."""

    prefix: Annotated[str, Field(description="the tools are called prefix.tool; used once")]
    source: Annotated[str, Field(alias="from", description="provider:KEY or mcp:ID")]
    scope: Annotated[Scope, Field(description="session: a connection for each session, for mcp:")] = "shared"
    offer: Annotated[
        Offer | None, Field(description="to models, of the tools whose own rules say nothing; null: as their source")
    ] = None


BindingAnswer = TypedDict(
    "BindingAnswer", {"id": str, "prefix": str, "from": str, "scope": Scope, "offer": NotRequired[Offer]}
)
BindingAnswer.__doc__ = "A toolset as it is bound now."

_ALLOWLIST = "/api/agents/{id}/toolsets"
_BINDING = "/api/toolset-bindings/{id}"


def _allowlist_response(agent: str, allowed: Allowlist) -> OrjsonResponse[AllowlistAnswer]:
    return OrjsonResponse({"agent": agent, "toolsets": [*allowed.toolsets], "origin": allowed.origin})


@route("GET", _ALLOWLIST, ADMIN, "The toolsets that an agent may use")
@answers(AllowlistAnswer)
async def show_allowlist(request: HostRequest) -> OrjsonResponse[AllowlistAnswer]:
    """Answer the toolsets of an agent of the caller's tenant: none for one that nobody configured."""
    state = request.state
    agent = request.path_params["id"]
    return _allowlist_response(agent, state["host"].toolsets.allowlist(state["principal"].tenant, agent))


@route("PUT", _ALLOWLIST, ADMIN, "Replace the toolsets that an agent may use", AllowlistBody)
@answers(AllowlistAnswer, errors=(422,))
async def put_allowlist(request: HostRequest) -> OrjsonResponse[AllowlistAnswer]:
    """Replace the toolsets of an agent for the caller's tenant. Raises `HttpProblem` and `ApiError`."""
    agent = request.path_params["id"]
    body = await read_json(request, AllowlistBody)
    allowed = await request.state["host"].toolsets.allow(agent, tuple(body.toolsets), **acting(request))
    return _allowlist_response(agent, allowed)


@route("PUT", _BINDING, ADMIN, "Bind a toolset to a provider", BindingBody)
@answers(BindingAnswer, errors=(409, 422))
async def put_binding(request: HostRequest) -> OrjsonResponse[BindingAnswer]:
    """Bind a toolset for the caller's tenant. Raises `HttpProblem` and `ApiError`; then nothing has changed."""
    body = await read_json(request, BindingBody)
    binding = Binding(body.prefix, body.source, body.scope, body.offer)
    try:
        bound = await request.state["host"].toolsets.bind(request.path_params["id"], binding, **acting(request))
    except InvalidDefinition as error:
        raise HttpProblem(422, "invalid_toolset", str(error), param=error.at) from None
    answer: BindingAnswer = {"id": bound.id, "prefix": bound.prefix, "from": bound.shown, "scope": binding.scope}
    return OrjsonResponse(answer if binding.offer is None else {**answer, "offer": binding.offer})


class BuildBody(CamelBody):
    """A new toolset of tools that the caller has."""

    name: DocumentName
    description: Annotated[str | None, Field(max_length=MAX_DESCRIPTION)] = None
    tools: Annotated[list[ToolRefPart], Field(min_length=1, max_length=MAX_TOOLS)]


class AddNotesBody(CamelBody):
    """Notes for one tool of the toolset."""

    tool_ref: ToolRefPart
    notes: Annotated[list[NotePart], Field(min_length=1, max_length=MAX_NOTES)]
    if_exists: Literal["skip", "replace"] = Field(
        "skip", description="what happens to a note whose name exists already"
    )


class RemoveNotesBody(CamelBody):
    """The notes of one tool that are to go."""

    tool_ref: ToolRefPart
    names: Annotated[list[str], Field(min_length=1, max_length=MAX_NOTES)]


class ToolsetList(Answer):
    """The owner's toolsets, in alphabetical order."""

    toolsets: list[ToolsetLineAnswer]


class Unequipped(Answer):
    """What was equipped until now."""

    unequipped: str | None


_ALL = "/api/toolsets"
_ONE = f"{_ALL}/{{name}}"
_NOTES = f"{_ONE}/notes"
FORMS: tuple[str, ...] = get_args(Form)
_FORM = Parameter("format", "of the document; json when absent", FORMS)
_WHO = (
    Parameter("agent", "among whose tools: an agent's"),
    Parameter("session", "whose toolsets: those within this session", pattern=CODE_PATTERN),
)
_READING = (400, 404, 410)
_WRITING = (404, 409, 410, 422)
_EXPORTED = ("application/json", "application/yaml")

PRIVATE = {"cache-control": "private, no-cache"}


async def asking(request: HostRequest) -> Caller:
    """Return the caller with the agent and the session of the query. Raises `AccessError` and `StoreError`."""
    state = request.state
    session = await requested_session(request)
    return Caller(state["principal"], query_fields(request).get("agent") or None, session, state["request_id"])


def toolset_response(shown: ShownToolset, *, status: int = 200) -> OrjsonResponse[ToolsetAnswer]:
    return OrjsonResponse(shown.fields(), status, PRIVATE)


_YAML = "application/yaml"
_YAML_TYPES = frozenset({_YAML, "application/x-yaml", "text/yaml", "text/x-yaml"})


async def _document(request: HostRequest) -> Document:
    """Return the body, read as JSON or YAML by its Content-Type. Raises `HttpProblem`."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in _YAML_TYPES:
        return await read_json(request, Document)
    text = await read_body(request)
    try:
        fields = await request.state["host"].saved_toolsets.read_yaml(await asking(request), text)
    except ConfigError as error:
        raise invalid_request(str(error.problems[0])) from None
    except TooManyWaiting as error:
        headers = {"Retry-After": RETRY_AFTER_S}
        raise HttpProblem(429, "too_many_requests", f"{error}; try again", headers=headers) from None
    return validate_fields({**fields}, Document)


@route("GET", _ALL, READ, "The caller's saved toolsets", parameters=_WHO)
@answers(ToolsetList, errors=_READING)
async def list_toolsets(request: HostRequest) -> OrjsonResponse[ToolsetList]:
    """Answer the caller's toolsets."""
    lines = await request.state["host"].saved_toolsets.saved(await asking(request))
    return OrjsonResponse({"toolsets": [line.fields() for line in lines]}, 200, PRIVATE)


@route("POST", _ALL, CALL, "Save a new toolset", BuildBody, parameters=_WHO)
@answers(ToolsetAnswer, status=201, errors=_WRITING)
async def build_toolset(request: HostRequest) -> OrjsonResponse[ToolsetAnswer]:
    """Save a new toolset. Raises `HttpProblem` and `ApiError`."""
    body = await read_json(request, BuildBody)
    shown = await request.state["host"].saved_toolsets.build(
        await asking(request), body.name, [tool.reference for tool in body.tools], description=body.description or ""
    )
    return toolset_response(shown, status=201)


@route("GET", f"{_ALL}/active", READ, "The equipped toolset", parameters=_WHO)
@answers(ToolsetAnswer, errors=_READING)
async def active_toolset(request: HostRequest) -> OrjsonResponse[ToolsetAnswer]:
    """Answer the equipped toolset. Raises `ApiError` where there is none."""
    shown = await request.state["host"].saved_toolsets.active(await asking(request))
    if shown is None:
        raise ApiError("no_toolset_equipped", "no toolset is equipped; every tool is listed", "name")
    return toolset_response(shown)


@route("POST", f"{_ALL}/unequip", CALL, "List every tool again", parameters=_WHO)
@answers(Unequipped, errors=_READING)
async def unequip_toolset(request: HostRequest) -> OrjsonResponse[Unequipped]:
    """List everything again; the same where nothing was equipped."""
    name = await request.state["host"].saved_toolsets.unequip(await asking(request))
    return OrjsonResponse({"unequipped": name})


@route(
    "POST",
    f"{_ALL}/import",
    CALL,
    "Save a toolset from its document, in JSON or YAML",
    Document,
    parameters=_WHO,
)
@answers(ToolsetAnswer, status=201, errors=_WRITING)
async def import_toolset(request: HostRequest) -> OrjsonResponse[ToolsetAnswer]:
    """Save a new toolset from its document. Raises `HttpProblem` and `ApiError`."""
    document = await _document(request)
    shown = await request.state["host"].saved_toolsets.import_document(await asking(request), document)
    return toolset_response(shown, status=201)


@route("GET", _ONE, READ, "One saved toolset", parameters=_WHO)
@answers(ToolsetAnswer, errors=_READING)
async def show_toolset(request: HostRequest) -> OrjsonResponse[ToolsetAnswer]:
    """Answer one toolset. Raises `ApiError`."""
    caller = await asking(request)
    return toolset_response(await request.state["host"].saved_toolsets.show(caller, request.path_params["name"]))


@route("DELETE", _ONE, CALL, "Delete a saved toolset", parameters=_WHO)
@answers(status=204)
async def delete_toolset(request: HostRequest) -> Response:
    """Delete one toolset. Raises `ApiError`."""
    await request.state["host"].saved_toolsets.delete(await asking(request), request.path_params["name"])
    return Response(status_code=204)


@route("POST", f"{_ONE}/equip", CALL, "Equip a toolset", parameters=_WHO)
@answers(ToolsetAnswer, errors=_READING)
async def equip_toolset(request: HostRequest) -> OrjsonResponse[ToolsetAnswer]:
    """Make one toolset the caller's choice. Raises `ApiError`."""
    caller = await asking(request)
    return toolset_response(await request.state["host"].saved_toolsets.equip(caller, request.path_params["name"]))


@route("GET", f"{_ONE}/export", READ, "The document of a saved toolset", parameters=(_FORM, *_WHO))
@answers(Document, errors=_READING, content_types=_EXPORTED)
async def export_toolset(request: HostRequest) -> Response:
    """Answer one toolset as its document. Raises `HttpProblem` and `ApiError`."""
    form = query_fields(request).get("format", "json")
    if form not in FORMS:
        raise invalid_request(f"there is no format {form[:40]!r}; there are {', '.join(FORMS)}", "format")
    document = await request.state["host"].saved_toolsets.document(await asking(request), request.path_params["name"])
    is_yaml = form == "yaml"
    text = document_text(document, "yaml" if is_yaml else "json")
    return Response(text, headers=PRIVATE, media_type=_YAML if is_yaml else JSON)


@route("POST", _NOTES, CALL, "Attach notes to a tool of a toolset", AddNotesBody, parameters=_WHO)
@answers(NotesAnswer, errors=_WRITING)
async def add_notes(request: HostRequest) -> OrjsonResponse[NotesAnswer]:
    """Attach notes to a tool. Raises `HttpProblem` and `ApiError`; then nothing has changed."""
    body = await read_json(request, AddNotesBody)
    added = await request.state["host"].saved_toolsets.add_notes(
        await asking(request),
        body.tool_ref.reference,
        [note.value for note in body.notes],
        toolset=request.path_params["name"],
        replace_existing=body.if_exists == "replace",
    )
    return OrjsonResponse(added.fields())


@route("DELETE", _NOTES, CALL, "Take notes off a tool of a toolset", RemoveNotesBody, parameters=_WHO)
@answers(NotesGone, errors=_WRITING)
async def remove_notes(request: HostRequest) -> OrjsonResponse[NotesGone]:
    """Take notes off a tool. Raises `HttpProblem` and `ApiError`; then nothing has changed."""
    body = await read_json(request, RemoveNotesBody)
    removed = await request.state["host"].saved_toolsets.remove_notes(
        await asking(request), request.path_params["name"], body.tool_ref.reference, body.names
    )
    return OrjsonResponse(removed.fields())
