"""Saved toolsets as documents: built, listed, shown, deleted, exported, imported."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field
from starlette.responses import Response

from toolplug.catalog.call import CODE_PATTERN
from toolplug.catalog.exact_json import Answer
from toolplug.errors import ApiError, ConfigError
from toolplug.http.bodies.request_body import JSON, CamelBody, OrjsonResponse, read_body, read_json, validate_fields
from toolplug.http.errors import RETRY_AFTER_S, HttpProblem, invalid_request
from toolplug.http.requests import HostRequest, query_fields, requested_session
from toolplug.http.routing import CALL, READ, Parameter, answers, route
from toolplug.runtime.threads import TooManyWaiting
from toolplug.toolsets.saved.document import (
    Document,
    DocumentName,
    Form,
    NotePart,
    ToolRefPart,
    document_text,
)
from toolplug.toolsets.saved.notes import MAX_NOTES, NotesAnswer, NotesGone
from toolplug.toolsets.saved.saved_toolset import (
    MAX_DESCRIPTION,
    MAX_TOOLS,
    Caller,
    ShownToolset,
    ToolsetAnswer,
    ToolsetLineAnswer,
)


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
